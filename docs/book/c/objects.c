/* Protection domain, memory region, completion queue, queue pair: what each is for, and what it refuses. */
#include "book.h"

static const char *outcome(struct ibv_cq *cq)
{
	struct ibv_wc wc = poll_one(cq);
	return ibv_wc_status_str(wc.status);
}

static void post_write(struct ibv_qp *qp, const struct ibv_mr *from, uint32_t length, const struct ibv_mr *to)
{
	struct ibv_sge sge = piece(from, 0, length);
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {.remote_addr = (uintptr_t)to->addr, .rkey = to->rkey},
	};
	struct ibv_send_wr *bad;
	MUST(ibv_post_send(qp, &wr, &bad));
}

int main(void)
{
	struct ibv_context *context = open_first();
	/* ANCHOR: pd */
	struct ibv_pd *pd = must("ibv_alloc_pd", ibv_alloc_pd(context));
	struct ibv_pd *other = must("ibv_alloc_pd", ibv_alloc_pd(context));
	printf("ibv_alloc_pd        two protection domains\n");
	/* ANCHOR_END: pd */

	/* ANCHOR: cq */
	struct ibv_cq *cq = make_cq(context, NULL);
	struct ibv_qp *a = make_qp(pd, cq, cq), *b = make_qp(pd, cq, cq);
	printf("ibv_create_qp       A and B, on a queue of %d entries\n", cq->cqe);
	/* ANCHOR_END: cq */
	connect_both(context, a, b);

	/* ANCHOR: write */
	/* Memory of B that peers may write to. A learns its address and key, here without a socket. */
	char out[] = "written from afar", in[64] = "";
	struct ibv_mr *out_mr = reg(pd, out, sizeof out, 0);
	struct ibv_mr *open = reg(pd, in, sizeof in, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	post_write(a, out_mr, sizeof out, open);
	printf("RDMA WRITE          %s\n", outcome(cq));
	printf("memory of B         %s\n", in);
	/* ANCHOR_END: write */

	/* ANCHOR: rights */
	struct ibv_mr *readable = reg(pd, in, sizeof in, IBV_ACCESS_REMOTE_READ);
	post_write(a, out_mr, sizeof out, readable);
	printf("RDMA WRITE          where only reading is allowed: %s\n", outcome(cq));
	printf("afterwards          A is in %s, ", state_of(a));
	printf("B is in %s\n", state_of(b));
	/* ANCHOR_END: rights */

	/* ANCHOR: foreign */
	struct ibv_qp *c = make_qp(pd, cq, cq), *d = make_qp(pd, cq, cq);
	connect_both(context, c, d);
	struct ibv_mr *foreign = reg(other, out, sizeof out, 0);
	post_send(c, foreign, sizeof out, 0, IBV_SEND_SIGNALED);
	printf("ibv_post_send       memory of the other domain: %s\n", outcome(cq));
	/* ANCHOR_END: foreign */
	/* ANCHOR: busy */
	printf("ibv_dealloc_pd      with a region in it: %s\n", strerror(ibv_dealloc_pd(other)));
	/* ANCHOR_END: busy */
	return 0;
}
