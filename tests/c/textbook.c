/* The textbook path: register memory, post a signaled send, spin on ibv_poll_cq; then arm, block for the event, poll,
 * acknowledge. Everything is destroyed at the end, and every destroy succeeds. */
#include "common.h"

int main(void)
{
	struct ibv_context *context = open_first();
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	CHECK(channel != NULL);
	struct end a = make_end(context, NULL, 0), b = make_end(context, channel, 1);
	connect_qps(context, a.qp, b.qp);

	static char out[4096], in[4096];
	struct ibv_mr *out_mr = reg(a.pd, out, sizeof out), *in_mr = reg(b.pd, in, sizeof in);

	/* Polling. */
	strcpy(out, "first");
	post_recv(b.qp, in_mr, 0, sizeof in, 11);
	post_send(a.qp, out_mr, 0, 6, 12);
	poll_good(a.send_cq, 12);
	struct ibv_wc wc = poll_good(b.recv_cq, 11);
	CHECK_EQ(wc.opcode, IBV_WC_RECV);
	CHECK_EQ(wc.byte_len, 6);
	CHECK_EQ(wc.qp_num, b.qp->qp_num);
	CHECK_EQ(strcmp(in, "first"), 0);

	/* Sleeping, many times: arm, look once more, block, acknowledge, drain. */
	CHECK_EQ(ibv_req_notify_cq(b.recv_cq, 0), 0);
	for (uint64_t round = 0; round < 500; round++) {
		snprintf(out, sizeof out, "round %llu", (unsigned long long)round);
		post_recv(b.qp, in_mr, 0, sizeof in, round);
		post_send(a.qp, out_mr, 0, sizeof out, round);

		struct ibv_cq *cq = NULL;
		void *of = &cq;
		CHECK_EQ(ibv_get_cq_event(channel, &cq, &of), 0);
		CHECK(cq == b.recv_cq);
		CHECK(of == NULL);
		ibv_ack_cq_events(cq, 1);
		CHECK_EQ(ibv_req_notify_cq(cq, 0), 0);
		wc = poll_good(cq, round);
		CHECK_EQ(wc.byte_len, sizeof out);
		CHECK_EQ(memcmp(in, out, sizeof out), 0);
		CHECK_EQ(ibv_poll_cq(cq, 1, &wc), 0);
		poll_good(a.send_cq, round);
	}

	CHECK_EQ(ibv_dereg_mr(out_mr), 0);
	CHECK_EQ(ibv_dereg_mr(in_mr), 0);
	CHECK_EQ(ibv_destroy_comp_channel(channel), EBUSY);
	end_end(&a);
	end_end(&b);
	CHECK_EQ(ibv_destroy_comp_channel(channel), 0);
	CHECK_EQ(ibv_close_device(context), 0);
	return 0;
}
