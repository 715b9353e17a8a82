/* One process that stays, and many that come, say a word, and go. The one that stays must not grow.
 *
 *   age serve CARD                     stays; CARD is the file in which it says who it is
 *   age come CARD KIND END COUNT JOBS  COUNT processes, JOBS at a time
 *
 * KIND: ud (datagrams, no connection at all), rc (queue pairs introduced over a Unix socket), cm (by the connection
 * manager). END: clean (everything is destroyed), exit (the process just ends), kill (by SIGKILL). The one that stays does
 * what a server has to do: it destroys the queue pair of who has gone.
 *
 * On its input it takes lines: `report` makes it say what it holds and what an empty poll costs, `quit` makes it end.
 */
#include "common.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <rdma/rdma_cma.h>

enum { WORD = 64, GRH = 40, CONNS = 256, DATAGRAMS = 64, QKEY = 0x1ee7, CQ_DEPTH = 4096, PATIENCE_MS = 10000, CM_MS = 2000 };

static const char HELLO[WORD] = "hello";

/* Who stays. */
struct card {
	union ibv_gid gid;
	uint32_t ud_qpn;
	uint16_t cm_port;
	char device[64];
};

/* What two queue pairs need to know of each other. */
struct pass {
	union ibv_gid gid;
	uint32_t qpn;
};

/* A peer, with a queue pair of its own. */
struct conn {
	int fd;
	struct rdma_cm_id *id;
	struct ibv_qp *qp;
};

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_comp_channel *channel;
static struct ibv_cq *cq;
static struct ibv_qp *ud;
static struct ibv_mr *mr;
static struct conn conns[CONNS];
static char memory[(CONNS * 2 + DATAGRAMS) * (GRH + WORD)];
static union ibv_gid gid;
static unsigned long served;

static void receive(struct ibv_qp *qp, unsigned slot, unsigned length, uint64_t id)
{
	post_recv(qp, mr, (size_t)slot * (GRH + WORD), length, id);
}

static struct ibv_qp *new_qp(enum ibv_qp_type type)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .qp_type = type,
		.cap = {.max_send_wr = 128, .max_recv_wr = 128, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = WORD}};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	CHECK(qp != NULL);
	return qp;
}

static struct ibv_qp *new_ud(void)
{
	struct ibv_qp *qp = new_qp(IBV_QPT_UD);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY};
	CHECK_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), 0);
	attr.qp_state = IBV_QPS_RTR;
	CHECK_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
	attr.qp_state = IBV_QPS_RTS;
	CHECK_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
	return qp;
}

static int say(struct ibv_qp *qp, struct ibv_ah *ah, uint32_t qpn, uint64_t id)
{
	struct ibv_sge sge = {.addr = (uintptr_t)HELLO, .length = WORD};
	struct ibv_send_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE}, *bad;
	if (ah) {
		wr.wr.ud.ah = ah;
		wr.wr.ud.remote_qpn = qpn;
		wr.wr.ud.remote_qkey = QKEY;
	}
	return ibv_post_send(qp, &wr, &bad);
}

static void connect_to(struct ibv_qp *qp, const struct pass *peer)
{
	CHECK_EQ(to_init(qp), 0);
	CHECK_EQ(to_rtr(qp, &peer->gid, peer->qpn, 7), 0);
	CHECK_EQ(to_rts(qp, 7), 0);
}

static void set_up(void)
{
	pd = ibv_alloc_pd(context);
	channel = ibv_create_comp_channel(context);
	CHECK(pd && channel);
	cq = ibv_create_cq(context, CQ_DEPTH, NULL, channel, 0);
	mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
	CHECK(cq && mr);
	CHECK_EQ(ibv_query_gid(context, 1, GID_INDEX, &gid), 0);
}

/* ---- who stays ---- */

static void leave(struct conn *c)
{
	if (c->id) {
		rdma_destroy_qp(c->id);
		CHECK_EQ(rdma_destroy_id(c->id), 0);
	} else {
		CHECK_EQ(ibv_destroy_qp(c->qp), 0);
		close(c->fd);
	}
	*c = (struct conn){.fd = -1};
}

static struct conn *free_conn(void)
{
	for (int i = 0; i < CONNS; i++)
		if (!conns[i].qp)
			return &conns[i];
	FAIL("more than %d peers at a time", CONNS);
}

static void introduce(int listener)
{
	struct conn *c = free_conn();
	struct pass peer, mine = {.gid = gid};
	c->fd = accept(listener, NULL, NULL);
	CHECK(c->fd >= 0);
	if (recv(c->fd, &peer, sizeof peer, MSG_WAITALL) != sizeof peer) {
		close(c->fd);
		return;
	}
	c->qp = new_qp(IBV_QPT_RC);
	mine.qpn = c->qp->qp_num;
	connect_to(c->qp, &peer);
	receive(c->qp, DATAGRAMS + (unsigned)(c - conns), WORD, 1000 + (uint64_t)(c - conns));
	if (send(c->fd, &mine, sizeof mine, MSG_NOSIGNAL) != sizeof mine)
		leave(c);
}

static void connection_event(struct rdma_event_channel *cm)
{
	struct rdma_cm_event *event;
	CHECK_EQ(rdma_get_cm_event(cm, &event), 0);
	struct rdma_cm_id *id = event->id;
	struct conn *c = id->context;
	enum rdma_cm_event_type kind = event->event;
	CHECK_EQ(rdma_ack_cm_event(event), 0);
	if (kind == RDMA_CM_EVENT_CONNECT_REQUEST) {
		struct ibv_qp_init_attr init = {
			.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
			.cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = WORD}};
		struct rdma_conn_param param = {.rnr_retry_count = 7};
		c = free_conn();
		CHECK_EQ(rdma_create_qp(id, pd, &init), 0);
		*c = (struct conn){.fd = -1, .id = id, .qp = id->qp};
		id->context = c;
		receive(c->qp, DATAGRAMS + (unsigned)(c - conns), WORD, 1000 + (uint64_t)(c - conns));
		if (rdma_accept(id, &param) != 0)
			leave(c);
	} else if (c && c->id == id && (kind == RDMA_CM_EVENT_DISCONNECTED || kind == RDMA_CM_EVENT_CONNECT_ERROR ||
					kind == RDMA_CM_EVENT_UNREACHABLE || kind == RDMA_CM_EVENT_REJECTED)) {
		if (kind == RDMA_CM_EVENT_DISCONNECTED)
			rdma_disconnect(id);
		leave(c);
	}
}

static void answer_datagram(const struct ibv_wc *wc)
{
	unsigned slot = (unsigned)wc->wr_id;
	struct ibv_grh *grh = (struct ibv_grh *)(memory + (size_t)slot * (GRH + WORD));
	struct ibv_ah *ah = ibv_create_ah_from_wc(pd, (struct ibv_wc *)wc, grh, 1);
	served++;
	/* Who has gone already gets no answer. */
	if (ah) {
		say(ud, ah, wc->src_qp, 1);
		CHECK_EQ(ibv_destroy_ah(ah), 0);
	}
	receive(ud, slot, GRH + WORD, slot);
}

static void completions(void)
{
	struct ibv_wc wc[16];
	int n;
	while ((n = ibv_poll_cq(cq, 16, wc)) > 0)
		for (int i = 0; i < n; i++) {
			if (wc[i].status != IBV_WC_SUCCESS || !(wc[i].opcode & IBV_WC_RECV))
				continue;
			if (wc[i].wr_id < DATAGRAMS) {
				answer_datagram(&wc[i]);
				continue;
			}
			struct conn *c = &conns[wc[i].wr_id - 1000];
			if (c->qp && c->qp->qp_num == wc[i].qp_num) {
				served++;
				CHECK_EQ(say(c->qp, NULL, 0, 1), 0);
			}
		}
	CHECK_EQ(n, 0);
}

static unsigned count_dir(const char *path)
{
	DIR *dir = opendir(path);
	unsigned n = 0;
	CHECK(dir != NULL);
	while (readdir(dir))
		n++;
	closedir(dir);
	/* Without "." and "..", and the directory itself where descriptors are counted. */
	return n - 2;
}

/* Of its own: what it shares with others is counted by mappings, and fills with use up to their size. */
static unsigned long private_kib(void)
{
	unsigned long kib = 0;
	char line[128];
	FILE *f = fopen("/proc/self/status", "re");
	CHECK(f != NULL);
	while (kib == 0 && fgets(line, sizeof(line), f))
		sscanf(line, "RssAnon: %lu", &kib);
	fclose(f);
	CHECK(kib != 0);
	return kib;
}

static unsigned mappings(void)
{
	FILE *f = fopen("/proc/self/maps", "re");
	unsigned n = 0;
	CHECK(f != NULL);
	for (int c; (c = getc(f)) != EOF;)
		n += c == '\n';
	fclose(f);
	return n;
}

/* The least of many batches: what else runs here makes some of them longer. */
static double empty_poll_ns(void)
{
	enum { BATCHES = 200, POLLS = 200 };
	double least = 1e9;
	for (int b = 0; b < BATCHES; b++) {
		struct timespec from, to;
		struct ibv_wc wc;
		clock_gettime(CLOCK_MONOTONIC, &from);
		for (int i = 0; i < POLLS; i++)
			CHECK_EQ(ibv_poll_cq(cq, 1, &wc), 0);
		clock_gettime(CLOCK_MONOTONIC, &to);
		double took = (double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec);
		if (took / POLLS < least)
			least = took / POLLS;
	}
	return least;
}

static void report(void)
{
	unsigned open = 0;
	completions();
	for (int i = 0; i < CONNS; i++)
		open += conns[i].qp != NULL;
	printf("served %lu connected %u private_kib %lu descriptors %u mappings %u threads %u poll_ns %.1f\n", served, open,
	       private_kib(), count_dir("/proc/self/fd"), mappings(), count_dir("/proc/self/task"), empty_poll_ns());
	fflush(stdout);
}

static struct sockaddr_un at(const char *card)
{
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	CHECK((size_t)snprintf(name.sun_path, sizeof name.sun_path, "%s.sock", card) < sizeof name.sun_path);
	return name;
}

static void serve(const char *path)
{
	struct rdma_event_channel *cm = rdma_create_event_channel();
	struct rdma_cm_id *listener;
	struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	CHECK(cm != NULL);
	CHECK_EQ(rdma_create_id(cm, &listener, NULL, RDMA_PS_TCP), 0);
	CHECK_EQ(rdma_bind_addr(listener, (struct sockaddr *)&any), 0);
	context = listener->verbs;
	CHECK(context != NULL);
	set_up();
	ud = new_ud();
	for (unsigned i = 0; i < DATAGRAMS; i++)
		receive(ud, i, GRH + WORD, i);
	CHECK_EQ(rdma_listen(listener, 64), 0);

	struct sockaddr_un name = at(path);
	int door = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	unlink(name.sun_path);
	CHECK_EQ(bind(door, (struct sockaddr *)&name, sizeof name), 0);
	CHECK_EQ(listen(door, 64), 0);
	struct card card = {.gid = gid, .ud_qpn = ud->qp_num, .cm_port = rdma_get_src_port(listener)};
	snprintf(card.device, sizeof card.device, "%s", ibv_get_device_name(context->device));
	char draft[256];
	CHECK((size_t)snprintf(draft, sizeof draft, "%s.new", path) < sizeof draft);
	FILE *f = fopen(draft, "we");
	CHECK(f && fwrite(&card, sizeof card, 1, f) == 1 && fclose(f) == 0);
	CHECK_EQ(rename(draft, path), 0);

	CHECK_EQ(ibv_req_notify_cq(cq, 0), 0);
	for (;;) {
		enum { INPUT, DOOR, MANAGER, COMPLETIONS, FIXED };
		struct pollfd fds[FIXED + CONNS] = {{.fd = 0}, {.fd = door}, {.fd = cm->fd}, {.fd = channel->fd}};
		for (int i = 0; i < CONNS; i++)
			fds[FIXED + i].fd = conns[i].qp && !conns[i].id ? conns[i].fd : -1;
		for (int i = 0; i < FIXED + CONNS; i++)
			fds[i].events = POLLIN;
		CHECK(poll(fds, FIXED + CONNS, -1) >= 0 || errno == EINTR);
		if (fds[COMPLETIONS].revents) {
			struct ibv_cq *which;
			void *ignored;
			CHECK_EQ(ibv_get_cq_event(channel, &which, &ignored), 0);
			ibv_ack_cq_events(which, 1);
			CHECK_EQ(ibv_req_notify_cq(cq, 0), 0);
			completions();
		}
		for (int i = 0; i < CONNS; i++)
			if (fds[FIXED + i].fd >= 0 && fds[FIXED + i].revents)
				leave(&conns[i]);
		if (fds[DOOR].revents)
			introduce(door);
		if (fds[MANAGER].revents)
			connection_event(cm);
		if (fds[INPUT].revents) {
			char line[32];
			if (!fgets(line, sizeof line, stdin) || strcmp(line, "quit\n") == 0)
				exit(0);
			CHECK_EQ(strcmp(line, "report\n"), 0);
			report();
		}
	}
}

/* ---- who comes and goes ---- */

static struct ibv_wc await(void)
{
	struct ibv_wc wc;
	for (;;) {
		CHECK_EQ(poll_within(cq, &wc, PATIENCE_MS), 1);
		CHECK_EQ(wc.status, IBV_WC_SUCCESS);
		if (wc.opcode & IBV_WC_RECV)
			return wc;
	}
}

static void open_named(const char *wanted)
{
	int count;
	struct ibv_device **list = ibv_get_device_list(&count);
	for (int i = 0; i < count && !context; i++)
		if (strcmp(ibv_get_device_name(list[i]), wanted) == 0)
			context = ibv_open_device(list[i]);
	CHECK(context != NULL);
	ibv_free_device_list(list);
}

static void close_all(struct ibv_qp *qp)
{
	if (qp)
		CHECK_EQ(ibv_destroy_qp(qp), 0);
	CHECK_EQ(ibv_destroy_cq(cq), 0);
	CHECK_EQ(ibv_destroy_comp_channel(channel), 0);
	CHECK_EQ(ibv_dereg_mr(mr), 0);
	CHECK_EQ(ibv_dealloc_pd(pd), 0);
}

/* UD loses, and says so; so whoever hears nothing says it again. */
static struct ibv_qp *by_datagram(const struct card *card)
{
	open_named(card->device);
	set_up();
	struct ibv_qp *qp = new_ud();
	struct ibv_ah_attr attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = card->gid, .sgid_index = GID_INDEX, .hop_limit = 64}};
	struct ibv_ah *ah = ibv_create_ah(pd, &attr);
	struct ibv_wc wc;
	CHECK(ah != NULL);
	receive(qp, 0, GRH + WORD, 0);
	for (int tries = 0; tries < 20; tries++) {
		CHECK_EQ(say(qp, ah, card->ud_qpn, 1), 0);
		for (uint64_t until = now_ms() + 500; now_ms() < until;)
			if (poll_within(cq, &wc, 20) && (wc.opcode & IBV_WC_RECV)) {
				CHECK_EQ(ibv_destroy_ah(ah), 0);
				return qp;
			}
	}
	FAIL("no answer to twenty datagrams");
}

static struct ibv_qp *introduced(const struct card *card, const char *path, int *fd)
{
	struct sockaddr_un name = at(path);
	struct pass peer, mine;
	open_named(card->device);
	set_up();
	struct ibv_qp *qp = new_qp(IBV_QPT_RC);
	mine = (struct pass){.gid = gid, .qpn = qp->qp_num};
	*fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	CHECK_EQ(connect(*fd, (struct sockaddr *)&name, sizeof name), 0);
	CHECK_EQ(send(*fd, &mine, sizeof mine, MSG_NOSIGNAL), sizeof mine);
	CHECK_EQ(recv(*fd, &peer, sizeof peer, MSG_WAITALL), sizeof peer);
	connect_to(qp, &peer);
	receive(qp, 0, WORD, 0);
	CHECK_EQ(say(qp, NULL, 0, 1), 0);
	await();
	return qp;
}

static void pass_event(struct rdma_event_channel *cm, enum rdma_cm_event_type wanted)
{
	struct rdma_cm_event *event;
	CHECK_EQ(rdma_get_cm_event(cm, &event), 0);
	if (event->event != wanted)
		FAIL("%s (status %d) instead of %s", rdma_event_str(event->event), event->status, rdma_event_str(wanted));
	CHECK_EQ(rdma_ack_cm_event(event), 0);
}

static struct rdma_cm_id *managed(const struct card *card, struct rdma_event_channel **cm)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = card->cm_port, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct rdma_conn_param param = {.retry_count = 7, .rnr_retry_count = 7};
	struct rdma_cm_id *id;
	*cm = rdma_create_event_channel();
	CHECK(*cm != NULL);
	CHECK_EQ(rdma_create_id(*cm, &id, NULL, RDMA_PS_TCP), 0);
	CHECK_EQ(rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, CM_MS), 0);
	pass_event(*cm, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK_EQ(rdma_resolve_route(id, CM_MS), 0);
	pass_event(*cm, RDMA_CM_EVENT_ROUTE_RESOLVED);
	context = id->verbs;
	set_up();
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = WORD}};
	CHECK_EQ(rdma_create_qp(id, pd, &init), 0);
	receive(id->qp, 0, WORD, 0);
	CHECK_EQ(rdma_connect(id, &param), 0);
	pass_event(*cm, RDMA_CM_EVENT_ESTABLISHED);
	CHECK_EQ(say(id->qp, NULL, 0, 1), 0);
	await();
	return id;
}

static void live(const struct card *card, const char *path, const char *kind, const char *end)
{
	struct rdma_event_channel *cm = NULL;
	struct rdma_cm_id *id = NULL;
	struct ibv_qp *qp = NULL;
	int fd = -1;
	alarm(60);
	if (strcmp(kind, "ud") == 0)
		qp = by_datagram(card);
	else if (strcmp(kind, "rc") == 0)
		qp = introduced(card, path, &fd);
	else if (strcmp(kind, "cm") == 0)
		id = managed(card, &cm);
	else
		FAIL("kind %s is none of ud, rc, cm", kind);
	if (strcmp(end, "kill") == 0)
		raise(SIGKILL);
	if (strcmp(end, "exit") == 0)
		_exit(0);
	CHECK_EQ(strcmp(end, "clean"), 0);
	if (id) {
		CHECK_EQ(rdma_disconnect(id), 0);
		pass_event(cm, RDMA_CM_EVENT_DISCONNECTED);
		rdma_destroy_qp(id);
	}
	close_all(qp);
	if (id) {
		CHECK_EQ(rdma_destroy_id(id), 0);
		rdma_destroy_event_channel(cm);
	} else {
		CHECK_EQ(ibv_close_device(context), 0);
	}
	exit(0);
}

static void come(const char *path, const char *kind, const char *end, int count, int jobs)
{
	struct card card;
	FILE *f = fopen(path, "re");
	CHECK(f && fread(&card, sizeof card, 1, f) == 1);
	fclose(f);
	for (int born = 0, gone = 0; gone < count;) {
		if (born < count && born - gone < jobs) {
			born++;
			pid_t child = fork();
			CHECK(child >= 0);
			if (child == 0)
				live(&card, path, kind, end);
			continue;
		}
		int status;
		CHECK(wait(&status) > 0);
		gone++;
		int killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && strcmp(end, "kill") == 0;
		if (!killed && !(WIFEXITED(status) && WEXITSTATUS(status) == 0))
			FAIL("process %d of %d (%s, %s) ended with status %#x", gone, count, kind, end, status);
	}
}

int main(int argc, char **argv)
{
	signal(SIGPIPE, SIG_IGN);
	if (argc == 3 && strcmp(argv[1], "serve") == 0)
		serve(argv[2]);
	if (argc != 7 || strcmp(argv[1], "come") != 0)
		FAIL("usage: age serve CARD, or age come CARD KIND END COUNT JOBS");
	come(argv[2], argv[3], argv[4], atoi(argv[5]), atoi(argv[6]));
	return 0;
}
