/* A thread that is cancelled while it is busy with our functions ends at its own next cancellation point, and takes
 * nothing along: the process lives, no lock stays held, and the queue pairs still work. Error paths of real programs
 * (rping) do this. */
#include "common.h"

enum { ROUNDS = 50 };

static struct end a, b;
static struct ibv_mr *out_mr, *in_mr;
static char out[64], in[64];
static unsigned long messages;

static void post(struct ibv_qp *qp, struct ibv_mr *mr, char *bytes, int receive)
{
	struct ibv_sge sge = {.addr = (uintptr_t)bytes, .length = sizeof out, .lkey = mr->lkey};
	if (receive) {
		struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1}, *bad;
		CHECK_EQ(ibv_post_recv(qp, &wr, &bad), 0);
	} else {
		struct ibv_send_wr wr = {.wr_id = 2, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
					 .send_flags = IBV_SEND_SIGNALED},
				   *bad;
		CHECK_EQ(ibv_post_send(qp, &wr, &bad), 0);
	}
}

static void await(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	int found;
	while ((found = ibv_poll_cq(cq, 1, &wc)) == 0)
		;
	CHECK_EQ(found, 1);
	CHECK_EQ(wc.status, IBV_WC_SUCCESS);
}

static void exchange(void)
{
	post(b.qp, in_mr, in, 1);
	post(a.qp, out_mr, out, 0);
	await(b.recv_cq);
	await(a.send_cq);
	__atomic_fetch_add(&messages, 1, __ATOMIC_RELAXED);
}

static void *busy(void *unused)
{
	for (;;) {
		exchange();
		pthread_testcancel();
	}
	return unused;
}

int main(void)
{
	struct ibv_context *context = open_first();
	a = make_end(context, NULL, 0);
	b = make_end(context, NULL, 0);
	out_mr = ibv_reg_mr(a.pd, out, sizeof out, ALL_ACCESS);
	in_mr = ibv_reg_mr(b.pd, in, sizeof in, ALL_ACCESS);
	CHECK(out_mr != NULL && in_mr != NULL);
	connect_qps(context, a.qp, b.qp);

	for (int round = 0; round < ROUNDS; round++) {
		pthread_t thread;
		unsigned long before = __atomic_load_n(&messages, __ATOMIC_RELAXED);
		CHECK_EQ(pthread_create(&thread, NULL, busy, NULL), 0);
		while (__atomic_load_n(&messages, __ATOMIC_RELAXED) < before + 3)
			sleep_ms(1); /* Under valgrind one thread runs at a time, and who spins may keep the others from it. */
		CHECK_EQ(pthread_cancel(thread), 0);
		void *result;
		CHECK_EQ(pthread_join(thread, &result), 0);
		CHECK(result == PTHREAD_CANCELED);
	}
	/* Whoever comes next finds everything in order. */
	exchange();
	return 0;
}
