/* What a wake-up costs on this machine, and what follows for each pace of messages. */
#include "book.h"

#include <pthread.h>

enum { ROUNDS = 100 };

static struct ibv_qp *a;
static struct ibv_cq *send_cq;
static pthread_barrier_t armed;
static double posted[ROUNDS], woken[ROUNDS];

/* ANCHOR: wake */
static void *sender(void *unused)
{
	for (int i = 0; i < ROUNDS; i++) {
		pthread_barrier_wait(&armed);
		/* Long enough for the other to fall asleep. */
		pause_ms(1);
		struct ibv_sge sge = {.addr = (uintptr_t) "wake up!", .length = 8};
		struct ibv_send_wr wr = {.sg_list = &sge,
					 .num_sge = 1,
					 .opcode = IBV_WR_SEND,
					 .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE};
		struct ibv_send_wr *bad;
		posted[i] = now();
		MUST(ibv_post_send(a, &wr, &bad));
		MUST(poll_one(send_cq).status);
	}
	return unused;
}
/* ANCHOR_END: wake */

static int by_time(const void *x, const void *y)
{
	double one = *(const double *)x, other = *(const double *)y;
	return (one > other) - (one < other);
}

int main(void)
{
	struct ibv_context *context = open_first();
	struct ibv_pd *pd = must("ibv_alloc_pd", ibv_alloc_pd(context));
	struct ibv_comp_channel *channel = must("ibv_create_comp_channel", ibv_create_comp_channel(context));
	send_cq = make_cq(context, NULL);
	struct ibv_cq *cq = make_cq(context, channel), *of;
	a = make_qp(pd, send_cq, send_cq);
	struct ibv_qp *b = make_qp(pd, send_cq, cq);
	connect_both(context, a, b);
	static char in[8];
	struct ibv_mr *in_mr = reg(pd, in, sizeof in, IBV_ACCESS_LOCAL_WRITE);
	MUST(pthread_barrier_init(&armed, NULL, 2));
	pthread_t thread;
	MUST(pthread_create(&thread, NULL, sender, NULL));
	for (int i = 0; i < ROUNDS; i++) {
		struct ibv_wc wc;
		void *unused;
		post_recv(b, in_mr, 0);
		MUST(ibv_req_notify_cq(cq, 0));
		MUST(ibv_poll_cq(cq, 1, &wc));
		pthread_barrier_wait(&armed);
		MUST(ibv_get_cq_event(channel, &of, &unused));
		woken[i] = now();
		ibv_ack_cq_events(of, 1);
		MUST(poll_one(cq).status);
	}
	MUST(pthread_join(thread, NULL));
	double wakes[ROUNDS];
	for (int i = 0; i < ROUNDS; i++)
		wakes[i] = (woken[i] - posted[i]) * 1e6;
	qsort(wakes, ROUNDS, sizeof wakes[0], by_time);
	double wake = wakes[ROUNDS / 2];
	printf("a wake-up costs     %.1f µs here (the median of %d)\n", wake, ROUNDS);

	/* ANCHOR: rule */
	for (int gap = 1; gap <= 10000; gap *= 10) {
		/* Polling costs the gap, sleeping a wake-up: whoever knew the gap would pay the lesser. */
		double price = gap <= wake ? gap : wake;
		printf("a message each %5d µs: %s costs %.1f µs of a core per message, %.0f %%\n", gap,
		       gap <= wake ? "poll" : "sleep", price, 100 * price / gap);
	}
	/* ANCHOR_END: rule */
	return 0;
}
