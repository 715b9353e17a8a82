/* Opens, uses and closes everything there is, several times over: for tools that look for leaks and invalid accesses in
 * the library's own start, use and stop. */
#include "common.h"

#include <stddef.h>

enum { ROUNDS = 3, SIZE = 8192 };

static struct ibv_srq *make_srq(struct ibv_pd *pd)
{
	struct ibv_srq_init_attr init = {.attr = {.max_wr = 8, .max_sge = 1}};
	struct ibv_srq *srq = ibv_create_srq(pd, &init);
	CHECK(srq != NULL);
	struct ibv_srq_attr attr = {.srq_limit = 2};
	CHECK_EQ(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT), 0);
	return srq;
}

/* Memory of every kind. */
static void memory(struct ibv_context *context, struct ibv_pd *pd, void *buffer)
{
	struct ibv_mr *mr = reg(pd, buffer, SIZE);
	CHECK_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, buffer, SIZE / 2, 0), 0);
	CHECK_EQ(ibv_dereg_mr(mr), 0);

	struct ibv_mr *nothing = ibv_alloc_null_mr(pd);
	CHECK(nothing != NULL);
	CHECK_EQ(ibv_dereg_mr(nothing), 0);

	struct ibv_mw *window = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	CHECK(window != NULL);
	CHECK_EQ(ibv_dealloc_mw(window), 0);

	struct ibv_alloc_dm_attr attr = {.length = 256};
	struct ibv_dm *dm = ibv_alloc_dm(context, &attr);
	CHECK(dm != NULL);
	CHECK_EQ(ibv_memcpy_to_dm(dm, 0, buffer, 256), 0);
	struct ibv_mr *of_dm = ibv_reg_dm_mr(pd, dm, 0, 256, IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE);
	CHECK(of_dm != NULL);
	CHECK_EQ(ibv_free_dm(dm), EBUSY);
	CHECK_EQ(ibv_dereg_mr(of_dm), 0);
	CHECK_EQ(ibv_free_dm(dm), 0);
}

/* Domains that stand in for others, and objects by number. */
static void domains(struct ibv_context *context, struct ibv_pd *pd)
{
	struct ibv_td_init_attr td_attr = {0};
	struct ibv_td *td = ibv_alloc_td(context, &td_attr);
	CHECK(td != NULL);
	struct ibv_parent_domain_init_attr attr = {.pd = pd, .td = td};
	struct ibv_pd *parent = ibv_alloc_parent_domain(context, &attr);
	CHECK(parent != NULL);
	CHECK_EQ(ibv_dealloc_td(td), EBUSY);
	CHECK_EQ(ibv_dealloc_pd(parent), 0);
	CHECK_EQ(ibv_dealloc_td(td), 0);

	struct ibv_context *again = ibv_import_device(dup(context->cmd_fd));
	CHECK(again != NULL);
	struct ibv_pd *imported = ibv_import_pd(again, pd->handle);
	CHECK(imported != NULL);
	ibv_unimport_pd(imported);
	CHECK_EQ(ibv_close_device(again), 0);

	struct ibv_xrcd_init_attr xrcd_attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1, .oflags = O_CREAT};
	struct ibv_xrcd *xrcd = ibv_open_xrcd(context, &xrcd_attr);
	CHECK(xrcd != NULL);
	CHECK_EQ(ibv_close_xrcd(xrcd), 0);
}

/* A connection that sends, writes, reads and adds; its completions are read in place. */
static void connection(struct ibv_context *context, struct ibv_pd *pd, char *buffer)
{
	struct ibv_cq_init_attr_ex cq_attr = {.cqe = 16, .wc_flags = IBV_WC_EX_WITH_BYTE_LEN};
	struct ibv_cq_ex *sent = ibv_create_cq_ex(context, &cq_attr);
	CHECK(sent != NULL);
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	CHECK(channel != NULL);
	struct ibv_cq *received = make_cq(context, channel);
	CHECK_EQ(ibv_resize_cq(received, 64), 0);
	struct ibv_qp *a = make_qp(pd, ibv_cq_ex_to_cq(sent), ibv_cq_ex_to_cq(sent), IBV_QPT_RC);
	struct ibv_qp *b = make_qp(pd, received, received, IBV_QPT_RC);
	connect_qps(context, a, b);
	struct ibv_mr *mr = reg(pd, buffer, SIZE);
	uint64_t half = (uintptr_t)buffer + SIZE / 2;

	CHECK_EQ(ibv_req_notify_cq(received, 0), 0);
	post_recv(b, mr, SIZE / 2, SIZE / 2, 1);
	post_send(a, mr, 0, SIZE / 2, 2);
	post_rdma(a, IBV_WR_RDMA_WRITE, mr, 100, half, mr->rkey, 3);
	post_rdma(a, IBV_WR_RDMA_READ, mr, 3000, half, mr->rkey, 4);
	for (uint64_t id = 2; id <= 4; id++) {
		struct ibv_poll_cq_attr none = {0};
		int empty;
		while ((empty = ibv_start_poll(sent, &none)) == ENOENT)
			;
		CHECK_EQ(empty, 0);
		CHECK_EQ(sent->status, IBV_WC_SUCCESS);
		CHECK_EQ(sent->wr_id, id);
		ibv_wc_read_byte_len(sent);
		ibv_end_poll(sent);
	}
	struct ibv_cq *cq;
	void *of;
	CHECK_EQ(ibv_get_cq_event(channel, &cq, &of), 0);
	ibv_ack_cq_events(cq, 1);
	poll_good(received, 1);

	/* Work that is left when the queue pair goes. */
	post_recv(b, mr, 0, 8, 5);
	CHECK_EQ(ibv_destroy_qp(a), 0);
	CHECK_EQ(ibv_destroy_qp(b), 0);
	CHECK_EQ(ibv_dereg_mr(mr), 0);
	CHECK_EQ(ibv_destroy_cq(received), 0);
	CHECK_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(sent)), 0);
	CHECK_EQ(ibv_destroy_comp_channel(channel), 0);
}

/* A queue pair with everything that hangs on one: an SRQ, a group, an address. */
static void datagrams(struct ibv_context *context, struct ibv_pd *pd, char *buffer)
{
	struct ibv_cq *cq = make_cq(context, NULL);
	struct ibv_srq *srq = make_srq(pd);
	struct ibv_qp_init_attr init = {.send_cq = cq,
					.recv_cq = cq,
					.srq = srq,
					.cap = {.max_send_wr = 8, .max_send_sge = 1},
					.qp_type = IBV_QPT_UD};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	CHECK(qp != NULL);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 7};
	CHECK_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), 0);
	attr.qp_state = IBV_QPS_RTR;
	CHECK_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
	attr.qp_state = IBV_QPS_RTS;
	CHECK_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
	union ibv_gid group = {.raw = {[10] = 0xff, [11] = 0xff, [12] = 239, [13] = 7, [14] = 7, [15] = 7}};
	CHECK_EQ(ibv_attach_mcast(qp, &group, 0), 0);

	union ibv_gid gid;
	CHECK_EQ(ibv_query_gid(context, 1, GID_INDEX, &gid), 0);
	struct ibv_ah_attr to = {.is_global = 1, .port_num = 1, .grh = {.dgid = gid, .sgid_index = GID_INDEX, .hop_limit = 9}};
	struct ibv_ah *ah = ibv_create_ah(pd, &to);
	CHECK(ah != NULL);
	struct ibv_mr *mr = reg(pd, buffer, SIZE);
	struct ibv_sge in = sge_of(mr, SIZE / 2, 512), out = sge_of(mr, 0, 100);
	struct ibv_recv_wr recv = {.wr_id = 1, .sg_list = &in, .num_sge = 1}, *bad_recv;
	CHECK_EQ(ibv_post_srq_recv(srq, &recv, &bad_recv), 0);
	struct ibv_send_wr send = {.wr_id = 2,
				   .sg_list = &out,
				   .num_sge = 1,
				   .opcode = IBV_WR_SEND,
				   .send_flags = IBV_SEND_SIGNALED,
				   .wr.ud = {.ah = ah, .remote_qpn = qp->qp_num, .remote_qkey = 7}},
			   *bad;
	CHECK_EQ(ibv_post_send(qp, &send, &bad), 0);
	struct ibv_wc wc;
	for (int seen = 0; seen < 2;) {
		int got = ibv_poll_cq(cq, 1, &wc);
		CHECK(got >= 0);
		if (got)
			CHECK_EQ(wc.status, IBV_WC_SUCCESS);
		seen += got;
	}

	/* Taking the only request has fallen below the SRQ's limit. */
	struct ibv_async_event event;
	CHECK_EQ(ibv_get_async_event(context, &event), 0);
	CHECK_EQ(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
	ibv_ack_async_event(&event);

	CHECK_EQ(ibv_detach_mcast(qp, &group, 0), 0);
	CHECK_EQ(ibv_destroy_qp(qp), 0);
	CHECK_EQ(ibv_destroy_ah(ah), 0);
	CHECK_EQ(ibv_destroy_srq(srq), 0);
	CHECK_EQ(ibv_dereg_mr(mr), 0);
	CHECK_EQ(ibv_destroy_cq(cq), 0);
}

int main(void)
{
	char *buffer = calloc(1, SIZE);
	CHECK(buffer != NULL);
	for (int round = 0; round < ROUNDS; round++) {
		struct ibv_context *context = open_first();
		struct ibv_pd *pd = ibv_alloc_pd(context);
		CHECK(pd != NULL);
		memory(context, pd, buffer);
		domains(context, pd);
		connection(context, pd, buffer);
		datagrams(context, pd, buffer);
		CHECK_EQ(ibv_dealloc_pd(pd), 0);
		CHECK_EQ(ibv_close_device(context), 0);
	}
	free(buffer);
	return 0;
}
