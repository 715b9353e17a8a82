/* A call starts work. A completion says that it is over. */
#include "book.h"

int main(void)
{
	/* ANCHOR: open */
	struct ibv_context *context = open_first();
	printf("ibv_open_device     %s\n", ibv_get_device_name(context->device));
	struct ibv_pd *pd = must("ibv_alloc_pd", ibv_alloc_pd(context));
	struct ibv_cq *cq = make_cq(context, NULL);
	struct ibv_qp *a = make_qp(pd, cq, cq), *b = make_qp(pd, cq, cq);
	connect_both(context, a, b);
	printf("connected           A is in %s, ", state_of(a));
	printf("B is in %s\n", state_of(b));
	/* ANCHOR_END: open */

	/* ANCHOR: send */
	char out[] = "hello, verbs", in[64];
	struct ibv_mr *out_mr = reg(pd, out, sizeof out - 1, 0);
	post_send(a, out_mr, sizeof out - 1, 1, IBV_SEND_SIGNALED);
	printf("ibv_post_send       accepted on A\n");

	struct ibv_wc wc;
	int done = 0;
	for (double until = now() + 0.020; now() < until;)
		done += ibv_poll_cq(cq, 1, &wc);
	printf("ibv_poll_cq         %d completions after 20 ms of looking\n", done);
	/* ANCHOR_END: send */

	/* ANCHOR: receive */
	struct ibv_mr *in_mr = reg(pd, in, sizeof in, IBV_ACCESS_LOCAL_WRITE);
	post_recv(b, in_mr, 2);
	printf("ibv_post_recv       accepted on B\n");
	for (done = 0; done < 2; done++) {
		wc = poll_one(cq);
		if (wc.status != IBV_WC_SUCCESS)
			printf("completion          wr_id %d failed: %s\n", (int)wc.wr_id, ibv_wc_status_str(wc.status));
		else if (wc.opcode == IBV_WC_RECV)
			printf("completion          Recv, %u bytes: %.*s\n", wc.byte_len, (int)wc.byte_len, in);
		else
			printf("completion          Send\n");
	}
	/* ANCHOR_END: receive */

	/* ANCHOR: close */
	MUST(ibv_destroy_qp(a));
	MUST(ibv_destroy_qp(b));
	MUST(ibv_destroy_cq(cq));
	MUST(ibv_dereg_mr(out_mr));
	MUST(ibv_dereg_mr(in_mr));
	MUST(ibv_dealloc_pd(pd));
	MUST(ibv_close_device(context));
	/* ANCHOR_END: close */
	return 0;
}
