/* A completion queue in an event loop, beside another descriptor. */
#include "book.h"

#include <sys/epoll.h>

enum { QUEUE = 1, STOP = 2 };

static struct ibv_comp_channel *channel;

/* ANCHOR: take */
/* The descriptor does not block: EAGAIN says that there is no event. */
static int take_events(void)
{
	struct ibv_cq *cq;
	void *context;
	int taken = 0;
	while (ibv_get_cq_event(channel, &cq, &context) == 0) {
		ibv_ack_cq_events(cq, 1);
		taken++;
	}
	MUST(errno != EAGAIN);
	return taken;
}
/* ANCHOR_END: take */

int main(void)
{
	struct ibv_context *context = open_first();
	struct ibv_pd *pd = must("ibv_alloc_pd", ibv_alloc_pd(context));
	channel = must("ibv_create_comp_channel", ibv_create_comp_channel(context));
	struct ibv_cq *send_cq = make_cq(context, NULL), *cq = make_cq(context, channel);
	struct ibv_qp *a = make_qp(pd, send_cq, send_cq), *b = make_qp(pd, send_cq, cq);
	connect_both(context, a, b);
	static char out[] = "to the loop", in[64];
	struct ibv_mr *out_mr = reg(pd, out, sizeof out, 0);
	struct ibv_mr *in_mr = reg(pd, in, sizeof in, IBV_ACCESS_LOCAL_WRITE);
	for (int i = 0; i < 3; i++)
		post_recv(b, in_mr, 0);
	int stop[2];
	MUST(pipe(stop));

	/* ANCHOR: watch */
	MUST(set_nonblocking(channel->fd));
	int loop_fd = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event queue = {.events = EPOLLIN, .data.u64 = QUEUE};
	struct epoll_event stopper = {.events = EPOLLIN, .data.u64 = STOP};
	MUST(epoll_ctl(loop_fd, EPOLL_CTL_ADD, channel->fd, &queue));
	MUST(epoll_ctl(loop_fd, EPOLL_CTL_ADD, stop[0], &stopper));
	printf("nothing yet         %d events\n", take_events());
	/* ANCHOR_END: watch */

	/* ANCHOR: loop */
	MUST(ibv_req_notify_cq(cq, 0));
	post_send(a, out_mr, sizeof out, 0, 0);
	for (int left = 3, running = 1; running;) {
		struct epoll_event ready[2];
		int count = epoll_wait(loop_fd, ready, 2, -1);
		for (int i = 0; i < count; i++) {
			if (ready[i].data.u64 == STOP) {
				running = 0;
				continue;
			}
			printf("epoll_wait          the channel is readable, %d event taken\n", take_events());
			/* Arm first, then poll until nothing is left; and only then handle what came. */
			MUST(ibv_req_notify_cq(cq, 0));
			struct ibv_wc wc;
			int messages = 0;
			while (ibv_poll_cq(cq, 1, &wc) > 0) {
				MUST(wc.status);
				messages++;
			}
			while (messages--) {
				printf("ibv_poll_cq         a message\n");
				if (--left > 0)
					post_send(a, out_mr, sizeof out, 0, 0);
				else
					MUST(write(stop[1], "!", 1) != 1);
			}
		}
	}
	printf("epoll_wait          the other descriptor is readable: stop\n");
	/* ANCHOR_END: loop */
	return 0;
}
