/* Two threads that spin on their completion queues and play ping-pong. */
#include "book.h"

#include <pthread.h>
#include <sched.h>

enum { ROUNDS = 1000 };

struct side {
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	struct ibv_mr *in_mr;
	uint64_t in;
	unsigned long empty;
};

static struct side ping, pong;

/* ANCHOR: spin */
/* Spins until a message is there, and posts its buffer again. */
static uint64_t next_message(struct side *side)
{
	struct ibv_wc wc;
	for (unsigned spins = 1;; spins++) {
		int found = ibv_poll_cq(side->cq, 1, &wc);
		MUST(found < 0);
		if (found == 0) {
			side->empty++;
			/* Where there are fewer cores than spinners, the other one must get a turn. */
			if (spins % 1000 == 0)
				sched_yield();
			continue;
		}
		MUST(wc.status);
		if (wc.opcode == IBV_WC_RECV) {
			uint64_t ball = side->in;
			post_recv(side->qp, side->in_mr, 0);
			return ball;
		}
	}
}
/* ANCHOR_END: spin */

static void send_ball(struct side *side, uint64_t ball)
{
	struct ibv_sge sge = {.addr = (uintptr_t)&ball, .length = sizeof ball};
	struct ibv_send_wr wr = {.sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE};
	struct ibv_send_wr *bad;
	MUST(ibv_post_send(side->qp, &wr, &bad));
}

static void *other(void *unused)
{
	for (int round = 0; round < ROUNDS; round++)
		send_ball(&pong, next_message(&pong));
	return unused;
}

static void make_side(struct side *side, struct ibv_context *context, struct ibv_pd *pd)
{
	/* One queue per thread: two that poll the same one would take turns at its lock. */
	side->cq = make_cq(context, NULL);
	side->qp = make_qp(pd, side->cq, side->cq);
	side->in_mr = reg(pd, &side->in, sizeof side->in, IBV_ACCESS_LOCAL_WRITE);
}

static int by_time(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

int main(void)
{
	struct ibv_context *context = open_first();
	struct ibv_pd *pd = must("ibv_alloc_pd", ibv_alloc_pd(context));
	make_side(&ping, context, pd);
	make_side(&pong, context, pd);
	connect_both(context, ping.qp, pong.qp);
	post_recv(ping.qp, ping.in_mr, 0);
	post_recv(pong.qp, pong.in_mr, 0);
	pthread_t thread;
	MUST(pthread_create(&thread, NULL, other, NULL));

	static double times[ROUNDS];
	/* ANCHOR: rounds */
	for (uint64_t round = 0; round < ROUNDS; round++) {
		double started = now();
		send_ball(&ping, round);
		uint64_t ball = next_message(&ping);
		times[round] = (now() - started) * 1e6;
		MUST(ball != round);
	}
	/* ANCHOR_END: rounds */
	MUST(pthread_join(thread, NULL));
	qsort(times, ROUNDS, sizeof times[0], by_time);
	printf("%d round trips, every ball came back\n", ROUNDS);
	printf("half of them within %.1f µs, 99 %% within %.1f µs\n", times[ROUNDS / 2], times[ROUNDS / 100 * 99]);
	printf("%lu polls found nothing\n", ping.empty);
	return 0;
}
