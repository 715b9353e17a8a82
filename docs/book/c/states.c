/* A queue pair's way from RESET to RTS, and what is said when a step is wrong. */
#include "book.h"

/* ANCHOR: step */
/* Tries one step and says where the queue pair is afterwards. */
static void step(struct ibv_qp *qp, const char *what, struct ibv_qp_attr attr, int mask)
{
	int rc = ibv_modify_qp(qp, &attr, mask);
	if (rc)
		printf("%-20srefused: %s; A is in %s\n", what, strerror(rc), state_of(qp));
	else
		printf("%-20sA is in %s\n", what, state_of(qp));
}
/* ANCHOR_END: step */

int main(void)
{
	struct ibv_context *context = open_first();
	struct ibv_pd *pd = must("ibv_alloc_pd", ibv_alloc_pd(context));
	struct ibv_cq *cq = make_cq(context, NULL);
	/* ANCHOR: init */
	struct ibv_qp *a = make_qp(pd, cq, cq), *b = make_qp(pd, cq, cq);
	printf("created             A is in %s\n", state_of(a));
	struct ibv_qp_attr init = {
		.qp_state = IBV_QPS_INIT,
		.pkey_index = 0,
		.port_num = PORT,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
	};
	int init_mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
	step(a, "RESET to INIT", init, init_mask);
	/* ANCHOR_END: init */

	/* ANCHOR: attributes */
	union ibv_gid gid;
	MUST(ibv_query_gid(context, PORT, GID_INDEX, &gid));
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR,
		.ah_attr = {.is_global = 1, .port_num = PORT, .grh = {.dgid = gid, .sgid_index = GID_INDEX, .hop_limit = 64}},
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = b->qp_num,
		.rq_psn = 100,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 12,
	};
	int rtr_mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	struct ibv_qp_attr rts = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = 200,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.max_rd_atomic = 4,
	};
	int rts_mask = IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
		       IBV_QP_MAX_QP_RD_ATOMIC;
	/* ANCHOR_END: attributes */

	/* ANCHOR: mistakes */
	struct ibv_qp_attr wrong;
	step(a, "INIT to RTS", rts, rts_mask);
	step(a, "no dest_qp_num", rtr, rtr_mask & ~IBV_QP_DEST_QPN);
	step(a, "a timeout too early", rtr, rtr_mask | IBV_QP_TIMEOUT);
	wrong = rtr;
	wrong.ah_attr.is_global = 0;
	step(a, "a LID, no GID", wrong, rtr_mask);
	wrong = rtr;
	wrong.ah_attr.grh.sgid_index = 77;
	step(a, "GID index 77", wrong, rtr_mask);
	wrong = rtr;
	wrong.path_mtu = 1024;
	step(a, "the MTU in bytes", wrong, rtr_mask);
	wrong = rtr;
	wrong.max_dest_rd_atomic = 255;
	step(a, "255 reads at a time", wrong, rtr_mask);
	/* ANCHOR_END: mistakes */

	/* ANCHOR: steps */
	step(a, "INIT to RTR", rtr, rtr_mask);
	char out[] = "too early";
	struct ibv_mr *mr = reg(pd, out, sizeof out, 0);
	struct ibv_sge sge = piece(mr, 0, sizeof out);
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
	printf("ibv_post_send       refused: %s\n", strerror(ibv_post_send(a, &wr, &bad)));
	step(a, "RTR to RTS", rts, rts_mask);
	struct ibv_qp_attr err = {.qp_state = IBV_QPS_ERR};
	step(a, "to ERR", err, IBV_QP_STATE);
	/* ANCHOR_END: steps */
	return 0;
}
