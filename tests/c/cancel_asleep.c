/* Threads that are cancelled while they sleep for an event end there, as in any system call that waits: programs stop
 * their event threads so, and join them. What such a thread was doing for the others, somebody else does from then on,
 * and no event is lost. */
#include "common.h"

#include <netinet/in.h>
#include <rdma/rdma_cma.h>

enum { ROUNDS = 20 };

static struct ibv_context *context;
static struct ibv_comp_channel *channel;
static struct rdma_event_channel *cm_channel;
static struct end a, b;
static struct ibv_mr *out_mr, *in_mr;
static char out[64], in[64];
static int cleaned, came_through;

static void clean(void *unused)
{
	(void)unused;
	cleaned++;
}

static void *get_async(void *unused)
{
	struct ibv_async_event event;
	pthread_cleanup_push(clean, NULL);
	CHECK_EQ(ibv_get_async_event(context, &event), 0);
	pthread_cleanup_pop(0);
	return unused;
}

static void *get_cm(void *unused)
{
	struct rdma_cm_event *event;
	pthread_cleanup_push(clean, NULL);
	CHECK_EQ(rdma_get_cm_event(cm_channel, &event), 0);
	pthread_cleanup_pop(0);
	return unused;
}

static void *get_cq(void *unused)
{
	struct ibv_cq *cq;
	void *of;
	pthread_cleanup_push(clean, NULL);
	CHECK_EQ(ibv_get_cq_event(channel, &cq, &of), 0);
	pthread_cleanup_pop(0);
	CHECK(cq == b.recv_cq);
	ibv_ack_cq_events(cq, 1);
	return unused;
}

static pthread_t start(void *(*get)(void *), unsigned ms)
{
	pthread_t thread;
	CHECK_EQ(pthread_create(&thread, NULL, get, NULL), 0);
	sleep_ms(ms);
	return thread;
}

static void cancel(pthread_t thread)
{
	void *result;
	int before = cleaned;
	CHECK_EQ(pthread_cancel(thread), 0);
	CHECK_EQ(pthread_join(thread, &result), 0);
	CHECK(result == PTHREAD_CANCELED);
	CHECK_EQ(cleaned, before + 1);
}

/* A message for the armed CQ; nobody polls until the thread has got the event. */
static void message(pthread_t thread, uint64_t round)
{
	void *result;
	CHECK_EQ(ibv_req_notify_cq(b.recv_cq, 0), 0);
	post_recv(b.qp, in_mr, 0, sizeof in, round);
	post_send(a.qp, out_mr, 0, 8, round);
	CHECK_EQ(pthread_join(thread, &result), 0);
	CHECK(result == NULL);
	poll_good(b.recv_cq, round);
	poll_good(a.send_cq, round);
}

/* Calls that do not wait are no cancellation points, whatever the library has to open and close for them. */
static void calls_that_do_not_wait(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	CHECK(list != NULL);
	struct ibv_context *another = ibv_open_device(list[0]);
	CHECK(another != NULL);
	ibv_free_device_list(list);
	struct ibv_comp_channel *own = ibv_create_comp_channel(another);
	CHECK(own != NULL);
	struct end end = make_end(another, own, 0);
	CHECK_EQ(to_init(end.qp), 0);
	CHECK_EQ(ibv_destroy_qp(end.qp) + ibv_destroy_cq(end.recv_cq) + ibv_dealloc_pd(end.pd), 0);
	CHECK_EQ(ibv_destroy_comp_channel(own), 0);
	CHECK_EQ(ibv_close_device(another), 0);

	struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct rdma_event_channel *events = rdma_create_event_channel();
	struct rdma_cm_id *id;
	CHECK(events != NULL);
	CHECK_EQ(rdma_create_id(events, &id, NULL, RDMA_PS_TCP), 0);
	CHECK_EQ(rdma_bind_addr(id, (struct sockaddr *)&here), 0);
	CHECK_EQ(rdma_listen(id, 1), 0);
	CHECK_EQ(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(events);
}

/* A request that came earlier acts when the thread next waits, whether there is an event or not, and the event stays. */
static void *cancelled_before(void *unused)
{
	CHECK_EQ(pthread_cancel(pthread_self()), 0);
	calls_that_do_not_wait();
	came_through++;
	return get_cq(unused);
}

/* What a thread waits on is destroyed by another one: it sleeps on, whatever wakes the library meanwhile, until it is
 * cancelled or its process ends. Programs end with such threads. */
static void wait_on_what_has_gone(struct ibv_device *device)
{
	struct rdma_event_channel *other_channel = cm_channel;
	cm_channel = rdma_create_event_channel();
	CHECK(cm_channel != NULL);
	pthread_t on_channel = start(get_cm, 5);
	rdma_destroy_event_channel(cm_channel);
	cm_channel = other_channel;

	struct ibv_context *other_context = context;
	context = ibv_open_device(device);
	CHECK(context != NULL);
	pthread_t on_context = start(get_async, 5);
	CHECK_EQ(ibv_close_device(context), 0);
	context = other_context;

	for (uint64_t round = 0; round < 20; round++) {
		post_recv(b.qp, in_mr, 0, sizeof in, round);
		post_send(a.qp, out_mr, 0, 8, round);
		/* Nobody polls, so the thread on the channel is woken for what comes from outside. */
		sleep_ms(2);
		poll_good(b.recv_cq, round);
		poll_good(a.send_cq, round);
	}
	cancel(on_channel);
	cancel(on_context);
}

int main(void)
{
	context = open_first();
	channel = ibv_create_comp_channel(context);
	cm_channel = rdma_create_event_channel();
	CHECK(channel != NULL && cm_channel != NULL);
	a = make_end(context, NULL, 0);
	b = make_end(context, channel, 0);
	connect_qps(context, a.qp, b.qp);
	out_mr = reg(a.pd, out, sizeof out);
	in_mr = reg(b.pd, in, sizeof in);

	for (unsigned round = 0; round < ROUNDS; round++) {
		/* Some are still on their way to sleep. */
		cancel(start(get_async, round % 4));
		cancel(start(get_cm, round % 4));
		cancel(start(get_cq, round % 4));

		message(start(get_cq, round % 4), round);

		/* The one that came first watches for both. */
		pthread_t watching = start(get_cm, 2), other = start(get_cq, 2);
		cancel(watching);
		message(other, round);
		watching = start(get_cq, 2);
		other = start(get_cm, 2);
		cancel(other);
		message(watching, round);

		/* An event that lies there stays for the next. */
		pthread_t late;
		void *result;
		CHECK_EQ(ibv_req_notify_cq(b.recv_cq, 0), 0);
		post_recv(b.qp, in_mr, 0, sizeof in, round);
		post_send(a.qp, out_mr, 0, 8, round);
		poll_good(a.send_cq, round);
		CHECK_EQ(pthread_create(&late, NULL, cancelled_before, NULL), 0);
		CHECK_EQ(pthread_join(late, &result), 0);
		CHECK(result == PTHREAD_CANCELED);
		CHECK_EQ(came_through, round + 1);
		CHECK_EQ(pthread_create(&late, NULL, get_cq, NULL), 0);
		CHECK_EQ(pthread_join(late, &result), 0);
		CHECK(result == NULL);
		poll_good(b.recv_cq, round);
	}

	wait_on_what_has_gone(context->device);
	CHECK_EQ(ibv_dereg_mr(out_mr) + ibv_dereg_mr(in_mr), 0);
	for (struct end *end = &a; end != NULL; end = end == &a ? &b : NULL) {
		CHECK_EQ(ibv_destroy_qp(end->qp), 0);
		CHECK_EQ(ibv_destroy_cq(end->recv_cq), 0);
		CHECK_EQ(ibv_dealloc_pd(end->pd), 0);
	}
	CHECK_EQ(ibv_destroy_comp_channel(channel), 0);
	rdma_destroy_event_channel(cm_channel);
	CHECK_EQ(ibv_close_device(context), 0);
	return 0;
}
