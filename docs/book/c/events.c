/* Sleeping on a completion queue: arm, poll once more, sleep, get, acknowledge, drain. */
#include "book.h"

#include <fcntl.h>
#include <pthread.h>

static struct ibv_qp *a;
static struct ibv_mr *out_mr;

static void *sender(void *unused)
{
	pause_ms(20);
	for (int i = 0; i < 5; i++)
		post_send(a, out_mr, 5, 0, 0);
	return unused;
}

int main(void)
{
	struct ibv_context *context = open_first();
	struct ibv_pd *pd = must("ibv_alloc_pd", ibv_alloc_pd(context));
	/* ANCHOR: create */
	struct ibv_comp_channel *channel = must("ibv_create_comp_channel", ibv_create_comp_channel(context));
	struct ibv_cq *send_cq = make_cq(context, NULL);
	struct ibv_cq *recv_cq = make_cq(context, channel);
	/* ANCHOR_END: create */
	a = make_qp(pd, send_cq, send_cq);
	struct ibv_qp *b = make_qp(pd, send_cq, recv_cq);
	connect_both(context, a, b);
	static char out[8] = "burst", in[64];
	out_mr = reg(pd, out, sizeof out, 0);
	struct ibv_mr *in_mr = reg(pd, in, sizeof in, IBV_ACCESS_LOCAL_WRITE);
	for (uint64_t id = 0; id < 8; id++)
		post_recv(b, in_mr, id);
	struct ibv_wc wc[16];

	/* ANCHOR: repoll */
	/* A message that comes before the queue is armed: the second poll finds it. */
	post_send(a, out_mr, 5, 0, 0);
	pause_ms(10);
	MUST(ibv_req_notify_cq(recv_cq, 0));
	int found = ibv_poll_cq(recv_cq, 16, wc);
	if (found > 0)
		printf("ibv_req_notify_cq   armed; the poll after it finds %d: no sleep\n", found);
	else
		printf("ibv_req_notify_cq   armed; the poll after it finds nothing\n");
	/* ANCHOR_END: repoll */

	/* An event that is there by now is stale: it belongs to what the poll has found. */
	struct ibv_cq *cq;
	void *context_of_cq;
	int blocking = fcntl(channel->fd, F_GETFL);
	MUST(fcntl(channel->fd, F_SETFL, blocking | O_NONBLOCK));
	while (ibv_get_cq_event(channel, &cq, &context_of_cq) == 0)
		ibv_ack_cq_events(cq, 1);
	MUST(fcntl(channel->fd, F_SETFL, blocking));

	/* ANCHOR: sleep */
	/* Five messages that come while this thread sleeps raise one event. */
	MUST(ibv_req_notify_cq(recv_cq, 0));
	found = ibv_poll_cq(recv_cq, 16, wc);
	printf("ibv_req_notify_cq   armed; the poll after it finds %s\n", found ? "something" : "nothing");
	pthread_t thread;
	MUST(pthread_create(&thread, NULL, sender, NULL));
	int rc = ibv_get_cq_event(channel, &cq, &context_of_cq);
	ibv_ack_cq_events(cq, 1);
	printf("ibv_get_cq_event    woken: %s; the event is acknowledged\n", rc == 0 ? "true" : "false");
	MUST(pthread_join(thread, NULL));
	/* ANCHOR_END: sleep */

	/* ANCHOR: drain */
	for (found = 0; found < 5;) {
		int more = ibv_poll_cq(recv_cq, 16, wc);
		MUST(more < 0);
		found += more;
	}
	printf("ibv_poll_cq         %d completions for one event\n", found);
	MUST(fcntl(channel->fd, F_SETFL, blocking | O_NONBLOCK));
	int further = 0;
	while (ibv_get_cq_event(channel, &cq, &context_of_cq) == 0) {
		ibv_ack_cq_events(cq, 1);
		further++;
	}
	printf("further events      %d\n", further);
	/* ANCHOR_END: drain */
	return 0;
}
