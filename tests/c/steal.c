/* Two threads on one CQ. The sleeper is woken for a completion that the thief polls first: it finds the CQ empty, arms
 * again, goes back to sleep, and the next completion wakes it. Nothing is lost and nothing comes twice. */
#include "common.h"

#include <sched.h>

enum { ROUNDS = 200 };

static struct end a, b;
static struct ibv_comp_channel *channel;
static struct ibv_mr *out_mr, *in_mr;
static pthread_barrier_t woken, stolen;
static int seen_by_sleeper, empty_wakes;
static char out[64], in[64];

static void *sleeper(void *unused)
{
	(void)unused;
	for (int round = 0; round < ROUNDS; round++) {
		struct ibv_cq *cq;
		void *of;
		CHECK_EQ(ibv_get_cq_event(channel, &cq, &of), 0);
		ibv_ack_cq_events(cq, 1);
		pthread_barrier_wait(&woken);
		pthread_barrier_wait(&stolen);

		/* The thief was here. Arm, look, sleep again: one more event for the second message of the round. */
		struct ibv_wc wc;
		CHECK_EQ(ibv_req_notify_cq(cq, 0), 0);
		if (ibv_poll_cq(cq, 1, &wc) == 0)
			empty_wakes++;
		else
			FAIL("round %d: the stolen completion came twice", round);
		pthread_barrier_wait(&woken);
		for (;;) {
			CHECK_EQ(ibv_get_cq_event(channel, &cq, &of), 0);
			ibv_ack_cq_events(cq, 1);
			CHECK_EQ(ibv_req_notify_cq(cq, 0), 0);
			int found = ibv_poll_cq(cq, 1, &wc);
			CHECK(found >= 0);
			if (found)
				break;
		}
		CHECK_EQ(wc.status, IBV_WC_SUCCESS);
		CHECK_EQ(wc.wr_id, 2 * round + 1);
		seen_by_sleeper++;
		pthread_barrier_wait(&stolen);
	}
	return NULL;
}

/* Without rendezvous: both poll as they like, and each message is seen exactly once. */
enum { MESSAGES = 5000, WINDOW = 32 };
static unsigned char times_seen[MESSAGES];
static int total_seen;

static int take_all(void)
{
	struct ibv_wc wc;
	int found, last = 0;
	while ((found = ibv_poll_cq(b.recv_cq, 1, &wc)) > 0) {
		CHECK_EQ(wc.status, IBV_WC_SUCCESS);
		CHECK(wc.wr_id < MESSAGES);
		CHECK_EQ(__atomic_fetch_add(&times_seen[wc.wr_id], 1, __ATOMIC_SEQ_CST), 0);
		__atomic_fetch_add(&total_seen, 1, __ATOMIC_SEQ_CST);
		last |= wc.wr_id == MESSAGES - 1;
	}
	CHECK_EQ(found, 0);
	return last;
}

static void *racing_sleeper(void *unused)
{
	(void)unused;
	for (;;) {
		struct ibv_cq *cq;
		void *of;
		CHECK_EQ(ibv_get_cq_event(channel, &cq, &of), 0);
		ibv_ack_cq_events(cq, 1);
		CHECK_EQ(ibv_req_notify_cq(cq, 0), 0);
		if (take_all())
			return NULL;
	}
}

static void race(void)
{
	pthread_t thread;
	CHECK_EQ(ibv_req_notify_cq(b.recv_cq, 0), 0);
	CHECK_EQ(pthread_create(&thread, NULL, racing_sleeper, NULL), 0);
	for (int id = 0; id < MESSAGES; id++) {
		while (id - __atomic_load_n(&total_seen, __ATOMIC_SEQ_CST) >= WINDOW)
			sched_yield();
		post_recv(b.qp, in_mr, 0, sizeof in, id);
		post_send(a.qp, out_mr, 0, 8, id);
		poll_good(a.send_cq, id);
		/* The last message is the sleeper's: were its wake-up lost, the thread would never end. */
		if (id % 3 && id < MESSAGES - 1)
			take_all();
	}
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK_EQ(total_seen, MESSAGES);
}

int main(void)
{
	struct ibv_context *context = open_first();
	channel = ibv_create_comp_channel(context);
	CHECK(channel != NULL);
	a = make_end(context, NULL, 0);
	b = make_end(context, channel, 1);
	connect_qps(context, a.qp, b.qp);
	out_mr = reg(a.pd, out, sizeof out);
	in_mr = reg(b.pd, in, sizeof in);
	CHECK_EQ(pthread_barrier_init(&woken, NULL, 2), 0);
	CHECK_EQ(pthread_barrier_init(&stolen, NULL, 2), 0);
	CHECK_EQ(ibv_req_notify_cq(b.recv_cq, 0), 0);
	pthread_t thread;
	CHECK_EQ(pthread_create(&thread, NULL, sleeper, NULL), 0);

	for (int round = 0; round < ROUNDS; round++) {
		post_recv(b.qp, in_mr, 0, sizeof in, 2 * round);
		post_recv(b.qp, in_mr, 0, sizeof in, 2 * round + 1);
		post_send(a.qp, out_mr, 0, 8, 0);
		pthread_barrier_wait(&woken);
		/* Steal what the sleeper was woken for. */
		poll_good(b.recv_cq, 2 * round);
		poll_good(a.send_cq, 0);
		pthread_barrier_wait(&stolen);
		pthread_barrier_wait(&woken);
		/* Now the sleeper has found nothing; half of the time it is asleep already when the next one comes. */
		if (round % 2)
			sleep_ms(1);
		post_send(a.qp, out_mr, 0, 8, 1);
		poll_good(a.send_cq, 1);
		pthread_barrier_wait(&stolen);
	}
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK_EQ(seen_by_sleeper, ROUNDS);
	CHECK_EQ(empty_wakes, ROUNDS);

	race();
	CHECK_EQ(ibv_dereg_mr(out_mr), 0);
	CHECK_EQ(ibv_dereg_mr(in_mr), 0);
	end_end(&a);
	end_end(&b);
	return 0;
}
