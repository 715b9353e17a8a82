/* What the programs of the book share: they stop at the first call that fails, and say which. */
#ifndef BOOK_H
#define BOOK_H

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <infiniband/verbs.h>

/* ANCHOR: must */
/* Verbs report failure in three ways: an errno value, -1 and errno, or NULL and errno. */
#define MUST(call)                                                                                 \
	do {                                                                                       \
		int rc_ = (call);                                                                  \
		if (rc_) {                                                                         \
			fprintf(stderr, "%s: %s\n", #call, strerror(rc_ > 0 ? rc_ : errno));       \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

static inline void *must(const char *call, void *object)
{
	if (!object) {
		fprintf(stderr, "%s: %s\n", call, strerror(errno));
		exit(1);
	}
	return object;
}
/* ANCHOR_END: must */

enum { PORT = 1, GID_INDEX = 1 };

/* Opens the first device. Whatever hangs ends after 20 seconds. */
static inline struct ibv_context *open_first(void)
{
	alarm(20);
	setvbuf(stdout, NULL, _IOLBF, 0);
	struct ibv_device **list = must("ibv_get_device_list", ibv_get_device_list(NULL));
	struct ibv_context *context = must("ibv_open_device", list[0] ? ibv_open_device(list[0]) : NULL);
	ibv_free_device_list(list);
	return context;
}

static inline struct ibv_cq *make_cq(struct ibv_context *context, struct ibv_comp_channel *channel)
{
	return must("ibv_create_cq", ibv_create_cq(context, 64, NULL, channel, 0));
}

static inline struct ibv_qp *make_qp(struct ibv_pd *pd, struct ibv_cq *send_cq, struct ibv_cq *recv_cq)
{
	struct ibv_qp_init_attr init = {
		.send_cq = send_cq,
		.recv_cq = recv_cq,
		.cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 2, .max_recv_sge = 1, .max_inline_data = 64},
		.qp_type = IBV_QPT_RC,
	};
	return must("ibv_create_qp", ibv_create_qp(pd, &init));
}

static inline struct ibv_mr *reg(struct ibv_pd *pd, void *bytes, size_t length, int access)
{
	return must("ibv_reg_mr", ibv_reg_mr(pd, bytes, length, access));
}

/* The way of chapter "From RESET to RTS", for both ends; the first PSN of each is its number. */
static inline void connect_to(struct ibv_qp *qp, const union ibv_gid *gid, uint32_t peer)
{
	struct ibv_qp_attr init = {
		.qp_state = IBV_QPS_INIT,
		.port_num = PORT,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
	};
	MUST(ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR,
		.ah_attr = {.is_global = 1, .port_num = PORT, .grh = {.dgid = *gid, .sgid_index = GID_INDEX, .hop_limit = 64}},
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer,
		.rq_psn = peer,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 12,
	};
	MUST(ibv_modify_qp(qp, &rtr,
			   IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	struct ibv_qp_attr rts = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = qp->qp_num,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.max_rd_atomic = 4,
	};
	MUST(ibv_modify_qp(qp, &rts,
			   IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				   IBV_QP_MAX_QP_RD_ATOMIC));
}

static inline void connect_both(struct ibv_context *context, struct ibv_qp *a, struct ibv_qp *b)
{
	union ibv_gid gid;
	MUST(ibv_query_gid(context, PORT, GID_INDEX, &gid));
	connect_to(a, &gid, b->qp_num);
	connect_to(b, &gid, a->qp_num);
}

static inline struct ibv_sge piece(const struct ibv_mr *mr, size_t offset, uint32_t length)
{
	return (struct ibv_sge){.addr = (uintptr_t)mr->addr + offset, .length = length, .lkey = mr->lkey};
}

static inline void post_recv(struct ibv_qp *qp, const struct ibv_mr *mr, uint64_t id)
{
	struct ibv_sge sge = piece(mr, 0, (uint32_t)mr->length);
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad;
	MUST(ibv_post_recv(qp, &wr, &bad));
}

static inline void post_send(struct ibv_qp *qp, const struct ibv_mr *mr, uint32_t length, uint64_t id, unsigned flags)
{
	struct ibv_sge sge = piece(mr, 0, length);
	struct ibv_send_wr wr = {
		.wr_id = id, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = flags};
	struct ibv_send_wr *bad;
	MUST(ibv_post_send(qp, &wr, &bad));
}

static inline const char *state_of(struct ibv_qp *qp)
{
	static const char *const names[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	MUST(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init));
	return attr.qp_state <= IBV_QPS_ERR ? names[attr.qp_state] : "?";
}

/* One completion; spins for it. */
static inline struct ibv_wc poll_one(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	int found;
	do
		found = ibv_poll_cq(cq, 1, &wc);
	while (found == 0);
	MUST(found < 0);
	return wc;
}

/* From now on a call that would block says EAGAIN. */
static inline int set_nonblocking(int fd)
{
	return fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

static inline double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static inline void pause_ms(unsigned ms)
{
	struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
	nanosleep(&t, NULL);
}

#endif
