/* Two threads on one completion queue: who is woken finds that another has taken what there was. */
#include "book.h"

#include <poll.h>
#include <pthread.h>

enum { MESSAGES = 300 };

static struct ibv_comp_channel *channel;
static struct ibv_cq *cq;
static struct ibv_qp *a, *b;
static struct ibv_mr *in_mr;
static pthread_barrier_t armed, woken, stolen;

static int poll_count(void)
{
	struct ibv_wc wc[16];
	int found = ibv_poll_cq(cq, 16, wc);
	MUST(found < 0);
	for (int i = 0; i < found; i++)
		MUST(wc[i].status);
	return found;
}

static const char *sleep_once(void)
{
	struct ibv_cq *of;
	void *context;
	int rc = ibv_get_cq_event(channel, &of, &context);
	if (rc == 0)
		ibv_ack_cq_events(of, 1);
	return rc == 0 ? "true" : "false";
}

/* ANCHOR: stolen */
static void *sleeper(void *unused)
{
	MUST(ibv_req_notify_cq(cq, 0));
	MUST(poll_count());
	pthread_barrier_wait(&armed);
	printf("sleeper             woken: %s\n", sleep_once());
	pthread_barrier_wait(&woken);
	pthread_barrier_wait(&stolen);
	printf("sleeper             finds %d\n", poll_count());
	/* Woken for nothing. That is no error: arm, look, sleep again. */
	MUST(ibv_req_notify_cq(cq, 0));
	MUST(poll_count());
	pthread_barrier_wait(&armed);
	printf("sleeper             woken: %s\n", sleep_once());
	printf("sleeper             finds %d\n", poll_count());
	return unused;
}
/* ANCHOR_END: stolen */

/* ANCHOR: share */
static int taken;

/* Waits as it likes. Sleeps with poll(2) and a time limit, on a descriptor that does not block: of two that are
 * woken for one event, one gets it. */
static void *worker(void *unused)
{
	while (__atomic_load_n(&taken, __ATOMIC_SEQ_CST) < MESSAGES) {
		MUST(ibv_req_notify_cq(cq, 0));
		struct ibv_wc wc;
		int found = ibv_poll_cq(cq, 1, &wc);
		MUST(found < 0);
		if (found == 0) {
			struct pollfd fd = {.fd = channel->fd, .events = POLLIN};
			poll(&fd, 1, 20);
			struct ibv_cq *of;
			void *context;
			if (ibv_get_cq_event(channel, &of, &context) == 0)
				ibv_ack_cq_events(of, 1);
			continue;
		}
		MUST(wc.status);
		post_recv(b, in_mr, 0);
		__atomic_fetch_add(&taken, 1, __ATOMIC_SEQ_CST);
	}
	return unused;
}
/* ANCHOR_END: share */

int main(void)
{
	struct ibv_context *context = open_first();
	struct ibv_pd *pd = must("ibv_alloc_pd", ibv_alloc_pd(context));
	channel = must("ibv_create_comp_channel", ibv_create_comp_channel(context));
	struct ibv_cq *send_cq = make_cq(context, NULL);
	cq = make_cq(context, channel);
	a = make_qp(pd, send_cq, send_cq);
	b = make_qp(pd, send_cq, cq);
	connect_both(context, a, b);
	static char out[8] = "work", in[64];
	struct ibv_mr *out_mr = reg(pd, out, sizeof out, 0);
	in_mr = reg(pd, in, sizeof in, IBV_ACCESS_LOCAL_WRITE);
	for (int i = 0; i < 10; i++)
		post_recv(b, in_mr, 0);
	MUST(pthread_barrier_init(&armed, NULL, 2));
	MUST(pthread_barrier_init(&woken, NULL, 2));
	MUST(pthread_barrier_init(&stolen, NULL, 2));

	pthread_t thread;
	MUST(pthread_create(&thread, NULL, sleeper, NULL));
	pthread_barrier_wait(&armed);
	post_send(a, out_mr, 5, 0, IBV_SEND_SIGNALED);
	pthread_barrier_wait(&woken);
	printf("thief               finds %d\n", poll_count());
	pthread_barrier_wait(&stolen);
	pthread_barrier_wait(&armed);
	post_send(a, out_mr, 5, 0, IBV_SEND_SIGNALED);
	MUST(pthread_join(thread, NULL));
	poll_one(send_cq);
	poll_one(send_cq);

	MUST(set_nonblocking(channel->fd));
	pthread_t workers[2];
	for (int i = 0; i < 2; i++)
		MUST(pthread_create(&workers[i], NULL, worker, NULL));
	for (int i = 0; i < MESSAGES; i++) {
		post_send(a, out_mr, 5, 0, IBV_SEND_SIGNALED);
		MUST(poll_one(send_cq).status);
	}
	for (int i = 0; i < 2; i++)
		MUST(pthread_join(workers[i], NULL));
	printf("two workers         %d of %d messages taken\n", taken, MESSAGES);
	return 0;
}
