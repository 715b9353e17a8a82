/* Work requests: signaled and unsignaled ones, two pieces, inline ones, and a queue that is full. */
#include "book.h"

int main(void)
{
	struct ibv_context *context = open_first();
	struct ibv_pd *pd = must("ibv_alloc_pd", ibv_alloc_pd(context));
	struct ibv_cq *send_cq = make_cq(context, NULL), *recv_cq = make_cq(context, NULL);
	struct ibv_qp_init_attr init = {
		.send_cq = send_cq,
		.recv_cq = send_cq,
		.cap = {.max_send_wr = 8, .max_recv_wr = 1, .max_send_sge = 2, .max_recv_sge = 1, .max_inline_data = 64},
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_qp *a = must("ibv_create_qp", ibv_create_qp(pd, &init));
	struct ibv_qp *b = make_qp(pd, send_cq, recv_cq);
	connect_both(context, a, b);
	static char out[64] = "quiet", in[64];
	struct ibv_mr *out_mr = reg(pd, out, sizeof out, 0);
	struct ibv_mr *in_mr = reg(pd, in, sizeof in, IBV_ACCESS_LOCAL_WRITE);
	for (uint64_t id = 0; id < 6; id++)
		post_recv(b, in_mr, id);
	struct ibv_wc wc;
	struct ibv_send_wr *bad;

	/* ANCHOR: unsignaled */
	for (uint64_t id = 1; id <= 3; id++)
		post_send(a, out_mr, 5, id, 0);
	for (int received = 0; received < 3; received++)
		poll_one(recv_cq);
	printf("three unsignaled    B has received 3, A's queue shows %d\n", ibv_poll_cq(send_cq, 1, &wc));
	/* ANCHOR_END: unsignaled */

	/* ANCHOR: signaled */
	post_send(a, out_mr, 5, 4, IBV_SEND_SIGNALED);
	wc = poll_one(send_cq);
	printf("one signaled        wr_id %d: it and all before it are over\n", (int)wc.wr_id);
	/* ANCHOR_END: signaled */

	/* ANCHOR: pieces */
	/* A message from two places; the receiver sees one. */
	poll_one(recv_cq);
	strcpy(out, "head");
	strcpy(out + 32, " and tail");
	struct ibv_sge pieces[2] = {piece(out_mr, 0, 4), piece(out_mr, 32, 9)};
	struct ibv_send_wr gather = {
		.sg_list = pieces, .num_sge = 2, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
	MUST(ibv_post_send(a, &gather, &bad));
	poll_one(send_cq);
	wc = poll_one(recv_cq);
	printf("two pieces          B has %.*s\n", (int)wc.byte_len, in);
	/* ANCHOR_END: pieces */

	/* ANCHOR: inline */
	/* The bytes are copied before the call returns; no region, no key. */
	char local[] = "copied at once";
	struct ibv_sge sge = {.addr = (uintptr_t)local, .length = sizeof local - 1};
	struct ibv_send_wr wr = {.sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE};
	MUST(ibv_post_send(a, &wr, &bad));
	memset(local, '-', sizeof local);
	poll_one(send_cq);
	wc = poll_one(recv_cq);
	printf("inline              B has %.*s\n", (int)wc.byte_len, in);
	/* ANCHOR_END: inline */

	/* ANCHOR: full */
	/* B has no receive left, so nothing leaves A's queue. */
	for (uint64_t id = 0; id < 8; id++)
		post_send(a, out_mr, 5, id, IBV_SEND_SIGNALED);
	sge = piece(out_mr, 0, 5);
	wr.send_flags = IBV_SEND_SIGNALED;
	printf("the ninth of 8      %s\n", strerror(ibv_post_send(a, &wr, &bad)));
	post_recv(b, in_mr, 0);
	poll_one(send_cq);
	MUST(ibv_post_send(a, &wr, &bad));
	printf("after a completion  accepted\n");
	/* ANCHOR_END: full */
	return 0;
}
