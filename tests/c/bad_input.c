/* Unknown flags and masks, wrong states, foreign keys: each is answered with the errno or the completion status of the
 * verbs' documentation, changes nothing, and leaves a device that works. */
#include "common.h"

#include <sys/mman.h>

static struct ibv_context *context;

/* For calls that return a pointer or NULL with errno. */
#define CHECK_REFUSED(call, wanted)                                                                                   \
	do {                                                                                                          \
		errno = 0;                                                                                            \
		if ((call) != NULL)                                                                                   \
			FAIL("%s succeeded", #call);                                                                  \
		CHECK_EQ(errno, wanted);                                                                              \
	} while (0)

static enum ibv_qp_state state_of(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	CHECK_EQ(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
	return attr.qp_state;
}

static void memory_regions(struct ibv_pd *pd)
{
	static char buffer[4096];
	CHECK_REFUSED(ibv_reg_mr(pd, buffer, sizeof buffer, IBV_ACCESS_REMOTE_WRITE), EINVAL);
	CHECK_REFUSED(ibv_reg_mr(pd, buffer, sizeof buffer, IBV_ACCESS_REMOTE_ATOMIC), EINVAL);
	CHECK_REFUSED(ibv_reg_mr(pd, buffer, sizeof buffer, IBV_ACCESS_LOCAL_WRITE | (1 << 15)), EINVAL);
	CHECK_REFUSED(ibv_reg_mr(pd, (void *)(UINTPTR_MAX - 100), 4096, IBV_ACCESS_LOCAL_WRITE), EINVAL);

	char *gone = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(gone != MAP_FAILED);
	CHECK_EQ(munmap(gone + 4096, 4096), 0);
	CHECK_REFUSED(ibv_reg_mr(pd, gone, 8192, IBV_ACCESS_LOCAL_WRITE), EFAULT);
	CHECK_EQ(mprotect(gone, 4096, PROT_READ), 0);
	CHECK_REFUSED(ibv_reg_mr(pd, gone, 4096, IBV_ACCESS_LOCAL_WRITE), EFAULT);
	struct ibv_mr *read_only = ibv_reg_mr(pd, gone, 4096, IBV_ACCESS_REMOTE_READ);
	CHECK(read_only != NULL);
	CHECK_EQ(ibv_dereg_mr(read_only), 0);

	/* Bits 20 to 29 are optional: unknown ones are ignored. */
	struct ibv_mr *relaxed = ibv_reg_mr(pd, buffer, sizeof buffer, IBV_ACCESS_LOCAL_WRITE | (1 << 27));
	CHECK(relaxed != NULL);
	CHECK_EQ(ibv_dealloc_pd(pd), EBUSY);
	CHECK_EQ(ibv_dereg_mr(relaxed), 0);
}

static void completion_queues(void)
{
	CHECK_REFUSED(ibv_create_cq(context, 0, NULL, NULL, 0), EINVAL);
	CHECK_REFUSED(ibv_create_cq(context, -1, NULL, NULL, 0), EINVAL);
	CHECK_REFUSED(ibv_create_cq(context, 0x7fffffff, NULL, NULL, 0), EINVAL);
	CHECK_REFUSED(ibv_create_cq(context, 16, NULL, NULL, context->num_comp_vectors), EINVAL);
	CHECK_REFUSED(ibv_create_cq(context, 16, NULL, NULL, -1), EINVAL);
	struct ibv_cq *cq = ibv_create_cq(context, 10, NULL, NULL, 0);
	CHECK(cq != NULL);
	CHECK(cq->cqe >= 10);
	struct ibv_wc wc;
	CHECK_EQ(ibv_poll_cq(cq, 1, &wc), 0);
	CHECK_EQ(ibv_destroy_cq(cq), 0);

	struct ibv_cq_init_attr_ex attr = {.cqe = 16, .comp_mask = 1u << 30};
	CHECK(ibv_create_cq_ex(context, &attr) == NULL);
	CHECK(errno == EINVAL || errno == EOPNOTSUPP);
}

static void queries(void)
{
	struct ibv_port_attr port;
	union ibv_gid gid;
	uint16_t pkey;
	CHECK_EQ(ibv_query_port(context, 0, &port), EINVAL);
	CHECK_EQ(ibv_query_port(context, 2, &port), EINVAL);
	CHECK_EQ(ibv_query_gid(context, 1, 10000, &gid), -1);
	CHECK_EQ(ibv_query_gid(context, 7, 0, &gid), -1);
	CHECK_EQ(ibv_query_pkey(context, 1, 10000, &pkey), -1);
}

static void queue_pairs(struct ibv_pd *pd)
{
	struct ibv_cq *cq = make_cq(context, NULL);
	struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC};
	init.cap.max_send_wr = 0x7fffffff;
	CHECK_REFUSED(ibv_create_qp(pd, &init), EINVAL);
	init.cap.max_send_wr = 4;
	init.cap.max_send_sge = 100000;
	CHECK_REFUSED(ibv_create_qp(pd, &init), EINVAL);
	init.cap.max_send_sge = 1;
	init.qp_type = 77;
	CHECK(ibv_create_qp(pd, &init) == NULL);
	CHECK(errno == EINVAL || errno == EOPNOTSUPP);

	struct ibv_qp *qp = make_qp(pd, cq, cq, IBV_QPT_RC);
	CHECK_EQ(ibv_destroy_cq(cq), EBUSY);

	/* Posting in states that do not allow it. */
	struct ibv_send_wr send = {.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad_send = NULL;
	struct ibv_recv_wr recv = {.wr_id = 1}, *bad_recv = NULL;
	CHECK_EQ(ibv_post_recv(qp, &recv, &bad_recv), EINVAL);
	CHECK(bad_recv == &recv);
	CHECK_EQ(ibv_post_send(qp, &send, &bad_send), EINVAL);
	CHECK(bad_send == &send);

	/* Wrong transitions and masks change nothing. */
	union ibv_gid gid;
	CHECK_EQ(ibv_query_gid(context, 1, GID_INDEX, &gid), 0);
	CHECK_EQ(to_rts(qp, 0), EINVAL);
	CHECK_EQ(to_rtr(qp, &gid, qp->qp_num, 0), EINVAL);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = ALL_ACCESS};
	int init_mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
	CHECK_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT), EINVAL);
	CHECK_EQ(ibv_modify_qp(qp, &attr, init_mask | IBV_QP_QKEY), EINVAL);
	CHECK_EQ(ibv_modify_qp(qp, &attr, init_mask | (1 << 30)), EINVAL);
	attr.port_num = 2;
	CHECK_EQ(ibv_modify_qp(qp, &attr, init_mask), EINVAL);
	attr.port_num = 1;
	attr.pkey_index = 999;
	CHECK_EQ(ibv_modify_qp(qp, &attr, init_mask), EINVAL);
	attr.pkey_index = 0;
	attr.qp_state = 42;
	CHECK_EQ(ibv_modify_qp(qp, &attr, init_mask), EINVAL);
	CHECK_EQ(state_of(qp), IBV_QPS_RESET);

	CHECK_EQ(to_init(qp), 0);
	CHECK_EQ(ibv_post_send(qp, &send, &bad_send), EINVAL);
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = qp->qp_num,
		.max_dest_rd_atomic = 4,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = gid, .sgid_index = GID_INDEX, .hop_limit = 64}},
	};
	int rtr_mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	rtr.ah_attr.is_global = 0;
	CHECK_EQ(ibv_modify_qp(qp, &rtr, rtr_mask), EINVAL);
	rtr.ah_attr.is_global = 1;
	rtr.ah_attr.grh.sgid_index = 250;
	CHECK_EQ(ibv_modify_qp(qp, &rtr, rtr_mask), EINVAL);
	rtr.ah_attr.grh.sgid_index = GID_INDEX;
	rtr.path_mtu = 9;
	CHECK_EQ(ibv_modify_qp(qp, &rtr, rtr_mask), EINVAL);
	rtr.path_mtu = IBV_MTU_1024;
	rtr.min_rnr_timer = 32;
	CHECK_EQ(ibv_modify_qp(qp, &rtr, rtr_mask), EINVAL);
	CHECK_EQ(state_of(qp), IBV_QPS_INIT);
	CHECK_EQ(ibv_destroy_qp(qp), 0);
	CHECK_EQ(ibv_destroy_cq(cq), 0);
}

/* A fresh connected pair for each case, because the case ends it. */
static void with_pair(void (*body)(struct end *, struct end *))
{
	struct end a = make_end(context, NULL, 0), b = make_end(context, NULL, 0);
	connect_qps(context, a.qp, b.qp);
	body(&a, &b);
	end_end(&a);
	end_end(&b);
}

static char local[256], remote[256];

static void expect_rdma(struct end *a, struct end *b, enum ibv_wr_opcode opcode, int access, int beyond, uint32_t flip,
			enum ibv_wc_status wanted)
{
	struct ibv_mr *mine = reg(a->pd, local, sizeof local);
	struct ibv_mr *theirs = ibv_reg_mr(b->pd, remote, 128, access);
	CHECK(theirs != NULL);
	memset(remote, 0x11, sizeof remote);
	memset(local, 0x22, sizeof local);
	post_rdma(a->qp, opcode, mine, 64, (uintptr_t)remote + (beyond ? 65 : 64), theirs->rkey ^ flip, 9);
	struct ibv_wc wc = poll_one(a->send_cq);
	CHECK_EQ(wc.wr_id, 9);
	CHECK_EQ(wc.status, wanted);
	if (wanted != IBV_WC_SUCCESS) {
		for (size_t i = 0; i < sizeof remote; i++)
			CHECK_EQ(remote[i], 0x11);
		for (size_t i = 0; i < sizeof local; i++)
			CHECK_EQ(local[i], 0x22);
		CHECK_EQ(state_of(a->qp), IBV_QPS_ERR);
		/* What is posted now is accepted and flushed. */
		post_send(a->qp, mine, 0, 8, 10);
		wc = poll_one(a->send_cq);
		CHECK_EQ(wc.wr_id, 10);
		CHECK_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
	}
	CHECK_EQ(ibv_dereg_mr(mine), 0);
	CHECK_EQ(ibv_dereg_mr(theirs), 0);
}

static void good_write(struct end *a, struct end *b)
{
	expect_rdma(a, b, IBV_WR_RDMA_WRITE, ALL_ACCESS, 0, 0, IBV_WC_SUCCESS);
}

static void write_without_right(struct end *a, struct end *b)
{
	expect_rdma(a, b, IBV_WR_RDMA_WRITE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ, 0, 0, IBV_WC_REM_ACCESS_ERR);
}

static void read_without_right(struct end *a, struct end *b)
{
	expect_rdma(a, b, IBV_WR_RDMA_READ, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, 0, 0, IBV_WC_REM_ACCESS_ERR);
}

static void write_beyond_the_end(struct end *a, struct end *b)
{
	expect_rdma(a, b, IBV_WR_RDMA_WRITE, ALL_ACCESS, 1, 0, IBV_WC_REM_ACCESS_ERR);
}

static void read_beyond_the_end(struct end *a, struct end *b)
{
	expect_rdma(a, b, IBV_WR_RDMA_READ, ALL_ACCESS, 1, 0, IBV_WC_REM_ACCESS_ERR);
}

static void write_with_a_wrong_tag(struct end *a, struct end *b)
{
	expect_rdma(a, b, IBV_WR_RDMA_WRITE, ALL_ACCESS, 0, 1, IBV_WC_REM_ACCESS_ERR);
}

static void write_with_a_made_up_key(struct end *a, struct end *b)
{
	expect_rdma(a, b, IBV_WR_RDMA_WRITE, ALL_ACCESS, 0, 0x5a5a5a00, IBV_WC_REM_ACCESS_ERR);
}

static void key_of_another_pd(struct end *a, struct end *b)
{
	/* The local key belongs to the peer's PD. */
	struct ibv_mr *foreign = reg(b->pd, remote, sizeof remote);
	post_send(a->qp, foreign, 0, 8, 5);
	struct ibv_wc wc = poll_one(a->send_cq);
	CHECK_EQ(wc.status, IBV_WC_LOC_PROT_ERR);
	CHECK_EQ(ibv_dereg_mr(foreign), 0);
}

static void remote_key_of_another_pd(struct end *a, struct end *b)
{
	struct ibv_mr *mine = reg(a->pd, local, sizeof local);
	(void)b;
	post_rdma(a->qp, IBV_WR_RDMA_WRITE, mine, 8, (uintptr_t)local + 128, mine->rkey, 5);
	struct ibv_wc wc = poll_one(a->send_cq);
	CHECK_EQ(wc.status, IBV_WC_REM_ACCESS_ERR);
	CHECK_EQ(ibv_dereg_mr(mine), 0);
}

static void receive_that_is_too_small(struct end *a, struct end *b)
{
	struct ibv_mr *mine = reg(a->pd, local, sizeof local), *theirs = reg(b->pd, remote, sizeof remote);
	memset(remote, 0x11, sizeof remote);
	memset(local, 0x22, sizeof local);
	post_recv(b->qp, theirs, 0, 16, 3);
	post_send(a->qp, mine, 0, 64, 4);
	struct ibv_wc wc = poll_one(a->send_cq);
	CHECK_EQ(wc.status, IBV_WC_REM_INV_REQ_ERR);
	wc = poll_one(b->recv_cq);
	CHECK_EQ(wc.wr_id, 3);
	CHECK_EQ(wc.status, IBV_WC_LOC_LEN_ERR);
	for (size_t i = 16; i < sizeof remote; i++)
		CHECK_EQ(remote[i], 0x11);
	CHECK_EQ(ibv_dereg_mr(mine), 0);
	CHECK_EQ(ibv_dereg_mr(theirs), 0);
}

static void work_requests_refused_at_once(struct end *a, struct end *b)
{
	struct ibv_mr *mine = reg(a->pd, local, sizeof local);
	struct ibv_sge sges[16];
	for (int i = 0; i < 16; i++)
		sges[i] = sge_of(mine, 0, 8);
	struct ibv_send_wr wr = {.wr_id = 1, .sg_list = sges, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad = NULL;
	(void)b;

	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	CHECK_EQ(ibv_query_qp(a->qp, &attr, IBV_QP_CAP, &init), 0);
	if (init.cap.max_send_sge < 16) {
		wr.num_sge = 16;
		CHECK_EQ(ibv_post_send(a->qp, &wr, &bad), EINVAL);
		CHECK(bad == &wr);
	}
	wr.num_sge = 1;
	wr.opcode = 99;
	CHECK_EQ(ibv_post_send(a->qp, &wr, &bad), EINVAL);
	wr.opcode = IBV_WR_SEND;
	wr.send_flags = IBV_SEND_INLINE;
	static char big[1 << 16];
	sges[0] = (struct ibv_sge){.addr = (uintptr_t)big, .length = sizeof big, .lkey = 0};
	if (init.cap.max_inline_data < sizeof big)
		CHECK_EQ(ibv_post_send(a->qp, &wr, &bad), EINVAL);
	sges[0] = sge_of(mine, 0, 8);
	wr.send_flags = 0;
	wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
	wr.wr.atomic.remote_addr = (uintptr_t)remote + 3;
	CHECK_EQ(ibv_post_send(a->qp, &wr, &bad), EINVAL);

	/* A list stops at the first bad request; those before it are posted. */
	struct ibv_send_wr second = {.wr_id = 22, .opcode = 99};
	struct ibv_sge one = sge_of(mine, 0, 8);
	struct ibv_send_wr first = {.wr_id = 21,
				    .next = &second,
				    .sg_list = &one,
				    .num_sge = 1,
				    .opcode = IBV_WR_RDMA_WRITE,
				    .send_flags = IBV_SEND_SIGNALED};
	struct ibv_mr *theirs = reg(b->pd, remote, sizeof remote);
	first.wr.rdma.remote_addr = (uintptr_t)remote;
	first.wr.rdma.rkey = theirs->rkey;
	CHECK_EQ(ibv_post_send(a->qp, &first, &bad), EINVAL);
	CHECK(bad == &second);
	poll_good(a->send_cq, 21);
	CHECK_EQ(state_of(a->qp), IBV_QPS_RTS);
	CHECK_EQ(ibv_dereg_mr(mine), 0);
	CHECK_EQ(ibv_dereg_mr(theirs), 0);
}

static void queues_that_are_full(struct end *a, struct end *b)
{
	/* Nothing is ever received here, so nothing leaves the receive queue. */
	struct ibv_mr *theirs = reg(b->pd, remote, sizeof remote);
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	(void)a;
	CHECK_EQ(ibv_query_qp(b->qp, &attr, IBV_QP_CAP, &init), 0);
	for (uint32_t i = 0; i < init.cap.max_recv_wr; i++)
		post_recv(b->qp, theirs, 0, 8, i);
	struct ibv_sge sge = sge_of(theirs, 0, 8);
	struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1}, *bad = NULL;
	CHECK_EQ(ibv_post_recv(b->qp, &wr, &bad), ENOMEM);
	CHECK(bad == &wr);
	CHECK_EQ(ibv_dereg_mr(theirs), 0);
}

static void flush_in_order(struct end *a, struct end *b)
{
	struct ibv_mr *theirs = reg(b->pd, remote, sizeof remote);
	(void)a;
	for (uint64_t id = 0; id < 5; id++)
		post_recv(b->qp, theirs, 0, 8, id);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	CHECK_EQ(ibv_modify_qp(b->qp, &attr, IBV_QP_STATE), 0);
	for (uint64_t id = 0; id < 5; id++) {
		struct ibv_wc wc = poll_one(b->recv_cq);
		CHECK_EQ(wc.wr_id, id);
		CHECK_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
	}
	CHECK_EQ(ibv_dereg_mr(theirs), 0);
}

static void address_handles(struct ibv_pd *pd)
{
	union ibv_gid gid;
	CHECK_EQ(ibv_query_gid(context, 1, GID_INDEX, &gid), 0);
	struct ibv_ah_attr attr = {.port_num = 1, .grh = {.dgid = gid, .sgid_index = GID_INDEX, .hop_limit = 1}};
	CHECK_REFUSED(ibv_create_ah(pd, &attr), EINVAL);
	attr.is_global = 1;
	attr.grh.sgid_index = 200;
	CHECK_REFUSED(ibv_create_ah(pd, &attr), EINVAL);
	attr.grh.sgid_index = GID_INDEX;
	attr.port_num = 3;
	CHECK_REFUSED(ibv_create_ah(pd, &attr), EINVAL);
	attr.port_num = 1;
	struct ibv_ah *ah = ibv_create_ah(pd, &attr);
	CHECK(ah != NULL);
	CHECK_EQ(ibv_destroy_ah(ah), 0);
}

int main(void)
{
	context = open_first();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	CHECK(pd != NULL);
	memory_regions(pd);
	completion_queues();
	queries();
	queue_pairs(pd);
	address_handles(pd);
	with_pair(good_write);
	with_pair(write_without_right);
	with_pair(read_without_right);
	with_pair(write_beyond_the_end);
	with_pair(read_beyond_the_end);
	with_pair(write_with_a_wrong_tag);
	with_pair(write_with_a_made_up_key);
	with_pair(key_of_another_pd);
	with_pair(remote_key_of_another_pd);
	with_pair(receive_that_is_too_small);
	with_pair(work_requests_refused_at_once);
	with_pair(queues_that_are_full);
	with_pair(flush_in_order);
	/* After all that the device is as good as before. */
	with_pair(good_write);
	CHECK_EQ(ibv_dealloc_pd(pd), 0);
	CHECK_EQ(ibv_close_device(context), 0);
	return 0;
}
