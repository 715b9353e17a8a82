/* ibv_destroy_cq waits until every event that was got has been acknowledged, and removes those nobody got. */
#include "common.h"

#include <poll.h>

static volatile int destroyed;

static void *destroyer(void *cq)
{
	CHECK_EQ(ibv_destroy_cq(cq), 0);
	__atomic_store_n(&destroyed, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

int main(void)
{
	static char out[64], in[64];
	struct ibv_context *context = open_first();
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	CHECK(channel != NULL);
	struct end a = make_end(context, NULL, 0), b = make_end(context, channel, 1);
	connect_qps(context, a.qp, b.qp);
	struct ibv_mr *out_mr = reg(a.pd, out, sizeof out), *in_mr = reg(b.pd, in, sizeof in);

	/* Three events, got and not acknowledged. */
	for (uint64_t round = 0; round < 3; round++) {
		CHECK_EQ(ibv_req_notify_cq(b.recv_cq, 0), 0);
		post_recv(b.qp, in_mr, 0, sizeof in, round);
		post_send(a.qp, out_mr, 0, 8, round);
		struct ibv_cq *cq;
		void *of;
		CHECK_EQ(ibv_get_cq_event(channel, &cq, &of), 0);
		poll_good(b.recv_cq, round);
		poll_good(a.send_cq, round);
	}
	/* And one that nobody gets. */
	CHECK_EQ(ibv_req_notify_cq(b.recv_cq, 0), 0);
	post_recv(b.qp, in_mr, 0, sizeof in, 3);
	post_send(a.qp, out_mr, 0, 8, 3);
	poll_good(a.send_cq, 3);
	struct pollfd fd = {.fd = channel->fd, .events = POLLIN};
	CHECK_EQ(poll(&fd, 1, 20000), 1);

	CHECK_EQ(ibv_destroy_cq(b.recv_cq), EBUSY);
	CHECK_EQ(ibv_destroy_qp(b.qp), 0);
	pthread_t thread;
	CHECK_EQ(pthread_create(&thread, NULL, destroyer, b.recv_cq), 0);
	sleep_ms(100);
	CHECK_EQ(__atomic_load_n(&destroyed, __ATOMIC_SEQ_CST), 0);
	ibv_ack_cq_events(b.recv_cq, 2);
	sleep_ms(100);
	CHECK_EQ(__atomic_load_n(&destroyed, __ATOMIC_SEQ_CST), 0);
	ibv_ack_cq_events(b.recv_cq, 1);
	CHECK_EQ(pthread_join(thread, NULL), 0);

	/* The event that nobody got went with its CQ. */
	CHECK_EQ(poll(&fd, 1, 0), 0);
	CHECK_EQ(ibv_destroy_cq(b.send_cq), 0);
	CHECK_EQ(ibv_destroy_comp_channel(channel), 0);
	CHECK_EQ(ibv_dereg_mr(out_mr), 0);
	CHECK_EQ(ibv_dereg_mr(in_mr), 0);
	CHECK_EQ(ibv_dealloc_pd(b.pd), 0);
	end_end(&a);
	CHECK_EQ(ibv_close_device(context), 0);
	return 0;
}
