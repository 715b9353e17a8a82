/* The same messages received in three ways: what each adds to a message, and what it takes of a core. */
#include "book.h"

#include <pthread.h>

enum { MESSAGES = 200, GAP_US = 300, SPIN_US = 40 };

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_comp_channel *channel;
static struct ibv_cq *send_cq, *cq;
static struct ibv_qp *a, *b;

static void *sender(void *unused)
{
	for (int i = 0; i < MESSAGES; i++) {
		struct timespec gap = {.tv_nsec = GAP_US * 1000};
		nanosleep(&gap, NULL);
		double sent = now();
		struct ibv_sge sge = {.addr = (uintptr_t)&sent, .length = sizeof sent};
		struct ibv_send_wr wr = {.sg_list = &sge,
					 .num_sge = 1,
					 .opcode = IBV_WR_SEND,
					 .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE};
		struct ibv_send_wr *bad;
		MUST(ibv_post_send(a, &wr, &bad));
		MUST(poll_one(send_cq).status);
	}
	return unused;
}

static int busy(struct ibv_wc *wc)
{
	int found;
	while ((found = ibv_poll_cq(cq, 1, wc)) == 0)
		;
	return found;
}

static int event(struct ibv_wc *wc)
{
	for (;;) {
		int found = ibv_poll_cq(cq, 1, wc);
		if (found)
			return found;
		MUST(ibv_req_notify_cq(cq, 0));
		found = ibv_poll_cq(cq, 1, wc);
		if (found)
			return found;
		struct ibv_cq *of;
		void *unused;
		MUST(ibv_get_cq_event(channel, &of, &unused));
		ibv_ack_cq_events(of, 1);
	}
}

/* ANCHOR: hybrid */
/* Spins for as long as a sleep would cost, then sleeps: never worse than twice the better of the two. */
static int hybrid(struct ibv_wc *wc)
{
	for (double until = now() + SPIN_US / 1e6; now() < until;) {
		int found = ibv_poll_cq(cq, 1, wc);
		if (found)
			return found;
	}
	return event(wc);
}
/* ANCHOR_END: hybrid */

static double thread_cpu(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int by_time(const void *x, const void *y)
{
	double one = *(const double *)x, other = *(const double *)y;
	return (one > other) - (one < other);
}

static void measure(const char *name, int (*wait)(struct ibv_wc *))
{
	channel = must("ibv_create_comp_channel", ibv_create_comp_channel(context));
	send_cq = make_cq(context, NULL);
	cq = make_cq(context, channel);
	a = make_qp(pd, send_cq, send_cq);
	b = make_qp(pd, send_cq, cq);
	connect_both(context, a, b);
	static double in[16], latency[MESSAGES];
	struct ibv_mr *in_mr = reg(pd, in, sizeof in, IBV_ACCESS_LOCAL_WRITE);
	for (uint64_t id = 0; id < 16; id++) {
		struct ibv_sge sge = piece(in_mr, id * sizeof in[0], sizeof in[0]);
		struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad;
		MUST(ibv_post_recv(b, &wr, &bad));
	}
	pthread_t thread;
	MUST(pthread_create(&thread, NULL, sender, NULL));
	double started = now(), cpu = thread_cpu();
	for (int i = 0; i < MESSAGES; i++) {
		struct ibv_wc wc;
		MUST(wait(&wc) < 0);
		MUST(wc.status);
		latency[i] = now() - in[wc.wr_id];
		struct ibv_sge sge = piece(in_mr, wc.wr_id * sizeof in[0], sizeof in[0]);
		struct ibv_recv_wr wr = {.wr_id = wc.wr_id, .sg_list = &sge, .num_sge = 1}, *bad;
		MUST(ibv_post_recv(b, &wr, &bad));
	}
	double wall = now() - started;
	cpu = thread_cpu() - cpu;
	MUST(pthread_join(thread, NULL));
	qsort(latency, MESSAGES, sizeof latency[0], by_time);
	printf("%-20smedian %.1f µs, %.0f %% of a core\n", name, latency[MESSAGES / 2] * 1e6, 100 * cpu / wall);
}

int main(void)
{
	context = open_first();
	pd = must("ibv_alloc_pd", ibv_alloc_pd(context));
	printf("%d messages, one every %d µs\n", MESSAGES, GAP_US);
	measure("busy", busy);
	measure("event", event);
	measure("spin, then sleep", hybrid);
	return 0;
}
