/* One side of a ping-pong whose other side is killed.
 *
 *   survivor PORT - WAIT [SIZE [ROUNDS]]       waits for a peer on TCP port PORT
 *   survivor PORT HOST WAIT [SIZE [ROUNDS]]    connects to it
 *
 * WAIT is poll or event. With ROUNDS it ends with 0 after as many; without, it goes on until the peer is dead. RC alone
 * does not tell a side that only waits to receive, so whoever has heard nothing for a while probes with an empty RDMA
 * WRITE. Ends with 7 when an error completion told of the death and the device could be used again afterwards, and with
 * 8 when the peer died before both were connected.
 */
#include "common.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>

enum { LOST_PEER = 7, LOST_EARLY = 8, PROBE_MS = 20, PROBE = 1000, SEND = 1001 };

struct address {
	union ibv_gid gid;
	uint32_t qpn, rkey;
	uint64_t at;
};

static int sleeping;
static struct ibv_comp_channel *channel;

static int tcp(const char *port, const char *host)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1;
	CHECK(fd >= 0);
	if (strcmp(host, "-") != 0) {
		CHECK_EQ(inet_pton(AF_INET, host, &to.sin_addr), 1);
		if (connect(fd, (struct sockaddr *)&to, sizeof to) != 0)
			exit(LOST_EARLY);
		return fd;
	}
	CHECK_EQ(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes), 0);
	CHECK_EQ(bind(fd, (struct sockaddr *)&to, sizeof to), 0);
	CHECK_EQ(listen(fd, 1), 0);
	/* The peer may be killed before it ever connects. */
	struct pollfd waits = {.fd = fd, .events = POLLIN};
	if (poll(&waits, 1, 5000) != 1)
		exit(LOST_EARLY);
	int peer = accept(fd, NULL, NULL);
	CHECK(peer >= 0);
	close(fd);
	return peer;
}

/* Swaps as many bytes with the peer. */
static void swap(int fd, const void *mine, void *theirs, size_t length)
{
	if (send(fd, mine, length, MSG_NOSIGNAL) != (ssize_t)length ||
	    recv(fd, theirs, length, MSG_WAITALL) != (ssize_t)length)
		exit(LOST_EARLY);
}

/* One completion, or none within `ms`. */
static int next(struct ibv_cq *cq, struct ibv_wc *wc, int ms)
{
	if (!sleeping)
		return poll_within(cq, wc, (unsigned)ms);
	int found = ibv_poll_cq(cq, 1, wc);
	CHECK(found >= 0);
	if (found)
		return 1;
	struct pollfd waits = {.fd = channel->fd, .events = POLLIN};
	if (poll(&waits, 1, ms) == 1) {
		struct ibv_cq *which;
		void *of;
		CHECK_EQ(ibv_get_cq_event(channel, &which, &of), 0);
		ibv_ack_cq_events(which, 1);
		CHECK_EQ(ibv_req_notify_cq(which, 0), 0);
	}
	return ibv_poll_cq(cq, 1, wc);
}

/* The peer is gone. Everything of the old connection can be taken down, and a new one works. */
static void use_again(struct ibv_context *context, struct end *old, struct ibv_mr *mr)
{
	CHECK_EQ(ibv_dereg_mr(mr), 0);
	end_end(old);
	static char bytes[2][64];
	struct end a = make_end(context, NULL, 0), b = make_end(context, NULL, 0);
	connect_qps(context, a.qp, b.qp);
	struct ibv_mr *out = reg(a.pd, bytes[0], 64), *in = reg(b.pd, bytes[1], 64);
	strcpy(bytes[0], "alive");
	post_recv(b.qp, in, 0, 64, 1);
	post_send(a.qp, out, 0, 64, 2);
	poll_good(a.send_cq, 2);
	poll_good(b.recv_cq, 1);
	CHECK_EQ(strcmp(bytes[1], "alive"), 0);
	CHECK_EQ(ibv_dereg_mr(out), 0);
	CHECK_EQ(ibv_dereg_mr(in), 0);
	end_end(&a);
	end_end(&b);
	CHECK_EQ(ibv_close_device(context), 0);
}

int main(int count, char **words)
{
	if (count < 4)
		FAIL("usage: survivor PORT HOST|- poll|event [SIZE [ROUNDS]]");
	sleeping = strcmp(words[3], "event") == 0;
	uint32_t size = count > 4 ? (uint32_t)atoi(words[4]) : 64;
	long rounds = count > 5 ? atol(words[5]) : -1;
	int starts = strcmp(words[2], "-") != 0;

	struct ibv_context *context = open_first();
	if (sleeping) {
		channel = ibv_create_comp_channel(context);
		CHECK(channel != NULL);
	}
	struct end me = make_end(context, channel, 0);
	char *buffer = calloc(2, size);
	CHECK(buffer != NULL);
	struct ibv_mr *mr = reg(me.pd, buffer, 2 * (size_t)size);
	CHECK_EQ(ibv_req_notify_cq(me.send_cq, 0), 0);

	int fd = tcp(words[1], words[2]);
	struct address mine = {.qpn = me.qp->qp_num, .rkey = mr->rkey, .at = (uintptr_t)buffer}, theirs;
	CHECK_EQ(ibv_query_gid(context, 1, GID_INDEX, &mine.gid), 0);
	swap(fd, &mine, &theirs, sizeof mine);
	CHECK_EQ(to_init(me.qp), 0);
	for (uint64_t id = 0; id < 4; id++)
		post_recv(me.qp, mr, size, size, id);
	if (to_rtr(me.qp, &theirs.gid, theirs.qpn, 5) != 0 || to_rts(me.qp, 5) != 0) {
		/* A destination whose process is gone cannot be reached: then TCP must say the same. */
		char byte;
		CHECK_EQ(recv(fd, &byte, 1, 0), 0);
		exit(LOST_EARLY);
	}
	char ready = 1, peer_ready;
	swap(fd, &ready, &peer_ready, 1);
	close(fd);

	long sent = 0, received = 0;
	int send_pending = 0, probe_pending = 0;
	uint64_t heard = now_ms();
	while (rounds < 0 || received < rounds || sent < rounds || send_pending) {
		int may_send = starts ? sent == received : sent < received;
		if (!send_pending && may_send && (rounds < 0 || sent < rounds)) {
			post_send(me.qp, mr, 0, size, SEND);
			send_pending = 1;
			sent++;
		}
		struct ibv_wc wc;
		if (next(me.send_cq, &wc, PROBE_MS) == 0) {
			if (!probe_pending && rounds < 0) {
				post_rdma(me.qp, IBV_WR_RDMA_WRITE, mr, 0, theirs.at, theirs.rkey, PROBE);
				probe_pending = 1;
			}
			continue;
		}
		if (wc.status != IBV_WC_SUCCESS) {
			printf("after %ld rounds, %llu ms of silence: %s\n", received,
			       (unsigned long long)(now_ms() - heard), ibv_wc_status_str(wc.status));
			CHECK(rounds < 0);
			/* The first error names the cause: nobody answered. */
			CHECK_EQ(wc.status, IBV_WC_RETRY_EXC_ERR);
			/* Everything else comes back too, flushed. */
			int left = 4 + (wc.wr_id == SEND ? probe_pending : send_pending);
			while (left-- > 0)
				CHECK_EQ(poll_one(me.send_cq).status, IBV_WC_WR_FLUSH_ERR);
			use_again(context, &me, mr);
			return LOST_PEER;
		}
		heard = now_ms();
		if (wc.wr_id == SEND) {
			send_pending = 0;
		} else if (wc.wr_id == PROBE) {
			probe_pending = 0;
		} else {
			received++;
			post_recv(me.qp, mr, size, size, wc.wr_id);
		}
	}
	CHECK_EQ(ibv_dereg_mr(mr), 0);
	end_end(&me);
	if (channel)
		CHECK_EQ(ibv_destroy_comp_channel(channel), 0);
	CHECK_EQ(ibv_close_device(context), 0);
	return 0;
}
