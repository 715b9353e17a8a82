/* The hot calls, one at a time, for `cargo xtask counts`: run under callgrind, it dumps how many instructions each took.
 *
 * Both ends live in one process and one thread drives them, so that every run takes the same steps. Collecting is
 * switched on around one call and off again: the checks, the other calls of a round and the NIC's own thread are not
 * counted. When that thread looks just then and loses its turn, though, the caller polls until it has it back; so each
 * call is dumped many times, as "CALL ROUNDS", and whoever reads the dumps takes the middle one. Without valgrind this
 * is a plain test of loopback.
 */
#include "common.h"

#include <valgrind/callgrind.h>

enum { WARM = 300, CHUNKS = 40, ROUNDS = 100, BYTES = 64 };

/* Which call of a round is counted. */
enum call { NOTHING, POST_RECV, POST, POLL_RECEIVE, POLL_SENT, WHOLE };

static struct end a, b;
static struct ibv_mr *out_mr, *in_mr;
static char out[BYTES], in[BYTES];

#define TOGGLE_FOR(counted, which)                                                                                    \
	do {                                                                                                          \
		if ((counted) == (which))                                                                             \
			CALLGRIND_TOGGLE_COLLECT;                                                                     \
	} while (0)

/* Polls until there is a completion, which a second poll may have to drive out. */
static void poll_counted(struct ibv_cq *cq, enum call counted, enum call call, uint64_t id)
{
	struct ibv_wc wc;
	int found, polls = 0;
	TOGGLE_FOR(counted, call);
	while ((found = ibv_poll_cq(cq, 1, &wc)) == 0 && ++polls < 1000000)
		;
	TOGGLE_FOR(counted, call);
	CHECK_EQ(found, 1);
	CHECK_EQ(wc.status, IBV_WC_SUCCESS);
	CHECK_EQ(wc.wr_id, id);
}

static void message(enum call counted, uint32_t length)
{
	static uint64_t id;
	id++;
	struct ibv_sge to = sge_of(in_mr, 0, sizeof in), from = sge_of(out_mr, 0, length);
	struct ibv_recv_wr recv = {.wr_id = id, .sg_list = &to, .num_sge = 1}, *bad_recv;
	struct ibv_send_wr send = {.wr_id = id, .sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND,
				   .send_flags = IBV_SEND_SIGNALED},
			   *bad_send;
	memcpy(out, &id, sizeof id);
	TOGGLE_FOR(counted, WHOLE);
	TOGGLE_FOR(counted, POST_RECV);
	int recv_error = ibv_post_recv(b.qp, &recv, &bad_recv);
	TOGGLE_FOR(counted, POST_RECV);
	TOGGLE_FOR(counted, POST);
	int send_error = ibv_post_send(a.qp, &send, &bad_send);
	TOGGLE_FOR(counted, POST);
	poll_counted(b.recv_cq, counted, POLL_RECEIVE, id);
	poll_counted(a.send_cq, counted, POLL_SENT, id);
	TOGGLE_FOR(counted, WHOLE);
	CHECK_EQ(recv_error, 0);
	CHECK_EQ(send_error, 0);
	CHECK_EQ(memcmp(in, &id, sizeof id), 0);
}

/* One RDMA operation between the starts of both buffers, and its completion. */
static void one_sided(enum ibv_wr_opcode opcode, enum call counted, uint32_t length)
{
	static uint64_t id = 1ULL << 32;
	id++;
	memcpy(opcode == IBV_WR_RDMA_READ ? in : out, &id, sizeof id);
	struct ibv_sge here = sge_of(out_mr, 0, length);
	struct ibv_send_wr wr = {.wr_id = id, .sg_list = &here, .num_sge = 1, .opcode = opcode,
				 .send_flags = IBV_SEND_SIGNALED,
				 .wr.rdma = {.remote_addr = (uintptr_t)in, .rkey = in_mr->rkey}},
			   *bad;
	TOGGLE_FOR(counted, WHOLE);
	int error = ibv_post_send(a.qp, &wr, &bad);
	poll_counted(a.send_cq, counted, POLL_SENT, id);
	TOGGLE_FOR(counted, WHOLE);
	CHECK_EQ(error, 0);
	CHECK_EQ(memcmp(in, out, sizeof id), 0);
}

static void empty(enum call counted)
{
	struct ibv_wc wc;
	TOGGLE_FOR(counted, WHOLE);
	int found = ibv_poll_cq(a.send_cq, 1, &wc);
	TOGGLE_FOR(counted, WHOLE);
	CHECK_EQ(found, 0);
}

/* Counts a statement's calls over the rounds of each chunk, after some that nobody counts. */
#define COUNT(name, which, statement)                                                                                 \
	do {                                                                                                          \
		enum call counted = NOTHING;                                                                          \
		for (int round = 0; round < WARM; round++)                                                            \
			statement;                                                                                    \
		char label[64];                                                                                       \
		snprintf(label, sizeof label, "%s %d", name, ROUNDS);                                                 \
		counted = which;                                                                                      \
		for (int chunk = 0; chunk < CHUNKS; chunk++) {                                                        \
			CALLGRIND_ZERO_STATS;                                                                         \
			for (int round = 0; round < ROUNDS; round++)                                                  \
				statement;                                                                            \
			CALLGRIND_DUMP_STATS_AT(label);                                                               \
		}                                                                                                     \
	} while (0)

int main(void)
{
	struct ibv_context *context = open_first();
	a = make_end(context, NULL, 1);
	b = make_end(context, NULL, 1);
	connect_qps(context, a.qp, b.qp);
	out_mr = reg(a.pd, out, sizeof out);
	in_mr = reg(b.pd, in, sizeof in);

	COUNT("post_recv", POST_RECV, message(counted, 8));
	COUNT("post_send", POST, message(counted, 8));
	COUNT("poll_receive", POLL_RECEIVE, message(counted, 8));
	COUNT("poll_sent", POLL_SENT, message(counted, 8));
	COUNT("poll_empty", WHOLE, empty(counted));
	COUNT("send", WHOLE, message(counted, 8));
	COUNT("write", WHOLE, one_sided(IBV_WR_RDMA_WRITE, counted, 8));
	COUNT("read", WHOLE, one_sided(IBV_WR_RDMA_READ, counted, 8));

	CHECK_EQ(ibv_dereg_mr(out_mr), 0);
	CHECK_EQ(ibv_dereg_mr(in_mr), 0);
	end_end(&a);
	end_end(&b);
	CHECK_EQ(ibv_close_device(context), 0);
	return 0;
}
