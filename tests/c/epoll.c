/* A completion channel in an event loop: O_NONBLOCK and epoll on channel->fd, level and edge triggered. The fd is
 * readable exactly while an event can be got, and get says EAGAIN otherwise. */
#include "common.h"

#include <sys/epoll.h>

static int events_within(int epoll, int ms)
{
	struct epoll_event event;
	int found;
	do
		found = epoll_wait(epoll, &event, 1, ms);
	while (found < 0 && errno == EINTR);
	CHECK(found >= 0);
	return found;
}

static void expect_eagain(struct ibv_comp_channel *channel)
{
	struct ibv_cq *cq;
	void *of;
	errno = 0;
	CHECK_EQ(ibv_get_cq_event(channel, &cq, &of), -1);
	CHECK_EQ(errno, EAGAIN);
}

static void run(struct ibv_context *context, uint32_t mode)
{
	static char out[64], in[64];
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	CHECK(channel != NULL);
	CHECK_EQ(fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK), 0);
	int epoll = epoll_create1(EPOLL_CLOEXEC);
	CHECK(epoll >= 0);
	struct epoll_event wanted = {.events = EPOLLIN | mode};
	CHECK_EQ(epoll_ctl(epoll, EPOLL_CTL_ADD, channel->fd, &wanted), 0);

	struct end a = make_end(context, NULL, 0), b = make_end(context, channel, 1);
	connect_qps(context, a.qp, b.qp);
	struct ibv_mr *out_mr = reg(a.pd, out, sizeof out), *in_mr = reg(b.pd, in, sizeof in);

	expect_eagain(channel);
	CHECK_EQ(events_within(epoll, 0), 0);
	/* A completion in a CQ that nobody armed raises nothing. */
	post_recv(b.qp, in_mr, 0, sizeof in, 1);
	post_send(a.qp, out_mr, 0, 8, 1);
	poll_good(a.send_cq, 1);
	CHECK_EQ(events_within(epoll, 50), 0);
	poll_good(b.recv_cq, 1);

	CHECK_EQ(ibv_req_notify_cq(b.recv_cq, 0), 0);
	for (uint64_t round = 0; round < 200; round++) {
		post_recv(b.qp, in_mr, 0, sizeof in, round);
		post_send(a.qp, out_mr, 0, 8, round);
		/* Nobody calls verbs while epoll sleeps: progress is the NIC's own. */
		CHECK_EQ(events_within(epoll, 20000), 1);
		struct ibv_cq *cq;
		void *of;
		CHECK_EQ(ibv_get_cq_event(channel, &cq, &of), 0);
		CHECK(cq == b.recv_cq);
		ibv_ack_cq_events(cq, 1);
		expect_eagain(channel);
		CHECK_EQ(events_within(epoll, 0), 0);
		CHECK_EQ(ibv_req_notify_cq(cq, 0), 0);
		poll_good(cq, round);
		poll_good(a.send_cq, round);
	}
	CHECK_EQ(close(epoll), 0);
	CHECK_EQ(ibv_dereg_mr(out_mr), 0);
	CHECK_EQ(ibv_dereg_mr(in_mr), 0);
	end_end(&a);
	end_end(&b);
	CHECK_EQ(ibv_destroy_comp_channel(channel), 0);
}

int main(void)
{
	struct ibv_context *context = open_first();
	run(context, 0);
	run(context, EPOLLET);
	CHECK_EQ(ibv_close_device(context), 0);
	return 0;
}
