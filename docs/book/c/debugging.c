/* The usual failures, made on purpose, and what their completions say. */
#include "book.h"

#include <poll.h>

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *a_cq, *b_cq;
static struct ibv_qp *a, *b;
static char out[128], in[128];
static struct ibv_mr *out_mr, *in_mr;

static void change(struct ibv_qp *qp, struct ibv_qp_attr attr, int mask)
{
	MUST(ibv_modify_qp(qp, &attr, mask));
}

/* A new pair with little patience. B expects A's first PSN and `ahead` more. */
static void pair(uint32_t ahead)
{
	a_cq = make_cq(context, NULL);
	b_cq = make_cq(context, NULL);
	a = make_qp(pd, a_cq, a_cq);
	b = make_qp(pd, b_cq, b_cq);
	union ibv_gid gid;
	MUST(ibv_query_gid(context, PORT, GID_INDEX, &gid));
	struct ibv_qp *ends[2] = {a, b};
	for (int i = 0; i < 2; i++) {
		uint32_t peer = ends[1 - i]->qp_num;
		change(ends[i],
		       (struct ibv_qp_attr){.qp_state = IBV_QPS_INIT,
					    .port_num = PORT,
					    .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ},
		       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
		change(ends[i],
		       (struct ibv_qp_attr){
			       .qp_state = IBV_QPS_RTR,
			       .ah_attr = {.is_global = 1,
					   .port_num = PORT,
					   .grh = {.dgid = gid, .sgid_index = GID_INDEX, .hop_limit = 64}},
			       .path_mtu = IBV_MTU_1024,
			       .dest_qp_num = peer,
			       .rq_psn = 5000 + (i == 1 ? ahead : 0),
			       .max_dest_rd_atomic = 4,
			       .min_rnr_timer = 12},
		       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
		change(ends[i],
		       (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
					    .sq_psn = 5000,
					    .timeout = 10,
					    .retry_cnt = 2,
					    .rnr_retry = 1,
					    .max_rd_atomic = 4},
		       IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			       IBV_QP_MAX_QP_RD_ATOMIC);
	}
}

/* After an error only status, wr_id, qp_num and vendor_err mean anything; opcode does not. */
static void tell(const char *who, struct ibv_cq *cq, int count)
{
	while (count--) {
		struct ibv_wc wc = poll_one(cq);
		printf("  %s: wr_id %d: %s\n", who, (int)wc.wr_id, ibv_wc_status_str(wc.status));
	}
}

/* ANCHOR: key */
static void wrong_key(void)
{
	printf("a READ where only writing is allowed, and a SEND behind it:\n");
	pair(0);
	struct ibv_mr *window = reg(pd, in, 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	struct ibv_sge sge = piece(in_mr, 64, 64);
	struct ibv_send_wr wr = {
		.wr_id = 1,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_READ,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {.remote_addr = (uintptr_t)in, .rkey = window->rkey},
	};
	struct ibv_send_wr *bad;
	MUST(ibv_post_send(a, &wr, &bad));
	post_send(a, out_mr, 6, 2, IBV_SEND_SIGNALED);
	tell("A", a_cq, 2);
	/* The side that was accessed has no completion. It has an event. */
	struct pollfd fd = {.fd = context->async_fd, .events = POLLIN};
	while (poll(&fd, 1, 100) > 0) {
		struct ibv_async_event event;
		MUST(ibv_get_async_event(context, &event));
		printf("  B: event %s\n", ibv_event_type_str(event.event_type));
		ibv_ack_async_event(&event);
	}
	printf("  A is in %s, ", state_of(a));
	printf("B is in %s\n", state_of(b));
}
/* ANCHOR_END: key */

/* ANCHOR: others */
static void too_long(void)
{
	printf("100 bytes for a receive of 64:\n");
	pair(0);
	struct ibv_sge sge = piece(in_mr, 0, 64);
	struct ibv_recv_wr wr = {.wr_id = 7, .sg_list = &sge, .num_sge = 1}, *bad;
	MUST(ibv_post_recv(b, &wr, &bad));
	post_send(a, out_mr, 100, 1, IBV_SEND_SIGNALED);
	tell("A", a_cq, 1);
	tell("B", b_cq, 1);
}

static void no_receive(void)
{
	printf("no receive posted, rnr_retry 1:\n");
	pair(0);
	post_send(a, out_mr, 13, 1, IBV_SEND_SIGNALED);
	tell("A", a_cq, 1);
}

static void wrong_psn(void)
{
	printf("B expects another first PSN:\n");
	pair(1000);
	post_recv(b, in_mr, 7);
	post_send(a, out_mr, 12, 1, IBV_SEND_SIGNALED);
	tell("A", a_cq, 1);
}
/* ANCHOR_END: others */

int main(void)
{
	context = open_first();
	pd = must("ibv_alloc_pd", ibv_alloc_pd(context));
	out_mr = reg(pd, out, sizeof out, 0);
	in_mr = reg(pd, in, sizeof in, IBV_ACCESS_LOCAL_WRITE);
	wrong_key();
	too_long();
	no_receive();
	wrong_psn();
	return 0;
}
