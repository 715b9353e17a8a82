/* Two processes. One ends right after its completion and has acknowledged the message all the same: by exit with nothing
 * destroyed, after the queue pair was destroyed, or after the region was given back as well. The other's send succeeds.
 */
#include "common.h"

#include <sys/socket.h>
#include <sys/wait.h>

enum { ROUNDS = 15 };

enum how { BY_EXIT, BY_DESTROY, BY_CLOSE, WAYS };

struct address {
	union ibv_gid gid;
	uint32_t qpn;
};

static struct address swap(int fd, struct ibv_context *context, struct ibv_qp *qp)
{
	struct address mine = {.qpn = qp->qp_num}, theirs;
	CHECK_EQ(ibv_query_gid(context, 1, GID_INDEX, &mine.gid), 0);
	CHECK_EQ(send(fd, &mine, sizeof mine, MSG_NOSIGNAL), sizeof mine);
	CHECK_EQ(recv(fd, &theirs, sizeof theirs, MSG_WAITALL), sizeof theirs);
	return theirs;
}

static struct end connected(int fd, struct ibv_context *context)
{
	struct end end = make_end(context, NULL, 1);
	CHECK_EQ(to_init(end.qp), 0);
	struct address peer = swap(fd, context, end.qp);
	CHECK_EQ(to_rtr(end.qp, &peer.gid, peer.qpn, 7), 0);
	CHECK_EQ(to_rts(end.qp, 7), 0);
	return end;
}

static void said(int fd)
{
	char yes = 'y';
	CHECK_EQ(send(fd, &yes, 1, MSG_NOSIGNAL), 1);
}

static void heard(int fd)
{
	char yes;
	CHECK_EQ(recv(fd, &yes, 1, MSG_WAITALL), 1);
}

/* Takes one message and ends. */
static void take_and_end(int fd, enum how how)
{
	static char bytes[64];
	struct ibv_context *context = open_first();
	struct end end = connected(fd, context);
	struct ibv_mr *mr = reg(end.pd, bytes, sizeof bytes);
	post_recv(end.qp, mr, 0, sizeof bytes, 1);
	said(fd);
	poll_good(end.recv_cq, 1);
	if (how >= BY_DESTROY)
		CHECK_EQ(ibv_destroy_qp(end.qp), 0);
	if (how == BY_CLOSE)
		CHECK_EQ(ibv_dereg_mr(mr), 0);
	exit(0);
}

static void send_one(int fd)
{
	static char bytes[64];
	static struct ibv_context *context;
	if (!context)
		context = open_first();
	struct end end = connected(fd, context);
	struct ibv_mr *mr = reg(end.pd, bytes, sizeof bytes);
	heard(fd);
	post_send(end.qp, mr, 0, sizeof bytes, 2);
	poll_good(end.send_cq, 2);
	CHECK_EQ(ibv_dereg_mr(mr), 0);
	end_end(&end);
}

int main(void)
{
	for (int round = 0; round < ROUNDS; round++) {
		int fds[2], status;
		CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
		pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0)
			take_and_end(fds[1], round % WAYS);
		close(fds[1]);
		send_one(fds[0]);
		close(fds[0]);
		CHECK_EQ(waitpid(child, &status, 0), child);
		CHECK_EQ(status, 0);
	}
	return 0;
}
