/* Two processes: the life of connections through the connection manager. One listens; the other connects, is rejected,
 * finds nobody, asks for a datagram service, and disconnects. */
#include "common.h"

#include <netinet/in.h>
#include <arpa/inet.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/wait.h>

#include <rdma/rdma_cma.h>

enum { SIZE = 4096, GRH = 40, CM_MS = 2000, CONSUMER_REJECT = 28, NOBODY_LISTENS = 8 };

static const char HELLO[] = "may I?", WELCOME[] = "welcome", NO[] = "not today", WORK[] = "some work", DONE[] = "done";

/* What the listener tells the other about itself: ports in network order. */
struct ports {
	uint16_t tcp, udp;
};

static struct sockaddr_in here(uint16_t port)
{
	return (struct sockaddr_in){
		.sin_family = AF_INET, .sin_port = port, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static struct rdma_cm_id *make_id(struct rdma_event_channel *channel, void *context, enum rdma_port_space space)
{
	struct rdma_cm_id *id = NULL;
	CHECK_EQ(rdma_create_id(channel, &id, context, space), 0);
	CHECK(id != NULL);
	CHECK(id->context == context);
	CHECK(id->channel == channel);
	return id;
}

/* Waits for an event of a kind. The caller acknowledges it. */
static struct rdma_cm_event *expect(struct rdma_event_channel *channel, enum rdma_cm_event_type kind)
{
	struct rdma_cm_event *event = NULL;
	CHECK_EQ(rdma_get_cm_event(channel, &event), 0);
	if (event->event != kind)
		FAIL("%s (status %d) instead of %s", rdma_event_str(event->event), event->status, rdma_event_str(kind));
	return event;
}

static void pass(struct rdma_event_channel *channel, enum rdma_cm_event_type kind)
{
	struct rdma_cm_event *event = expect(channel, kind);
	CHECK_EQ(event->status, 0);
	CHECK_EQ(rdma_ack_cm_event(event), 0);
}

/* Private data has the length of its field, zeros behind what was sent. */
static void check_private(const void *data, unsigned length, unsigned field, const char *text)
{
	CHECK_EQ(length, field);
	CHECK(strcmp(data, text) == 0);
	for (unsigned i = (unsigned)strlen(text); i < field; i++)
		CHECK_EQ(((const char *)data)[i], 0);
}

/* A queue pair in the default domain, with completion queues that the library makes. */
static void make_pair(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init = {
		.cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = id->ps == RDMA_PS_UDP ? IBV_QPT_UD : IBV_QPT_RC};
	CHECK_EQ(rdma_create_qp(id, NULL, &init), 0);
	CHECK(id->qp != NULL && id->pd != NULL && id->send_cq != NULL && id->recv_cq != NULL);
	CHECK(id->send_cq_channel != NULL && id->recv_cq_channel != NULL);
	CHECK(init.send_cq == id->send_cq && init.recv_cq == id->recv_cq);
	CHECK(id->qp->send_cq == id->send_cq);
}

static enum ibv_qp_state state_of(struct ibv_qp *qp, struct ibv_qp_attr *attr)
{
	struct ibv_qp_init_attr init;
	CHECK_EQ(ibv_query_qp(qp, attr, IBV_QP_STATE, &init), 0);
	return attr->qp_state;
}

static void resolve(struct rdma_cm_id *id, uint16_t port)
{
	struct sockaddr_in to = here(port);
	CHECK_EQ(rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, CM_MS), 0);
	pass(id->channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(id->verbs != NULL && id->pd != NULL);
	CHECK_EQ(id->port_num, 1);
	CHECK_EQ(rdma_get_dst_port(id), port);
	CHECK(rdma_get_src_port(id) != 0);
	CHECK_EQ(((struct sockaddr_in *)rdma_get_local_addr(id))->sin_addr.s_addr, htonl(INADDR_LOOPBACK));
	CHECK_EQ(rdma_resolve_route(id, CM_MS), 0);
	pass(id->channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
	CHECK_EQ(id->route.num_paths, 1);
	CHECK(memcmp(&id->route.path_rec->sgid, &id->route.addr.addr.ibaddr.sgid, 16) == 0);
}

static void end(struct rdma_cm_id *id)
{
	if (id->qp)
		rdma_destroy_qp(id);
	CHECK(id->qp == NULL && id->send_cq == NULL && id->recv_cq_channel == NULL);
	CHECK_EQ(rdma_destroy_id(id), 0);
}

/* What is refused at once. */
static void mistakes(struct rdma_event_channel *channel)
{
	struct rdma_cm_id *id = make_id(channel, NULL, RDMA_PS_TCP);
	struct rdma_conn_param param = {.retry_count = 7, .rnr_retry_count = 7};
	errno = 0;
	CHECK_EQ(rdma_connect(id, &param), -1);
	CHECK_EQ(errno, EINVAL);
	CHECK_EQ(rdma_resolve_route(id, CM_MS), -1);
	CHECK_EQ(errno, EINVAL);
	CHECK_EQ(rdma_accept(id, &param), -1);
	CHECK_EQ(errno, EINVAL);
	CHECK_EQ(rdma_disconnect(id), -1);
	CHECK_EQ(errno, EINVAL);
	CHECK_EQ(rdma_destroy_id(id), 0);

	struct rdma_cm_event *event;
	CHECK_EQ(fcntl(channel->fd, F_SETFL, O_NONBLOCK), 0);
	CHECK_EQ(rdma_get_cm_event(channel, &event), -1);
	CHECK_EQ(errno, EAGAIN);
	CHECK_EQ(fcntl(channel->fd, F_SETFL, 0), 0);
}

/* An id goes when its events are acknowledged, not before. */
static atomic_int gone;

static void *destroy(void *id)
{
	CHECK_EQ(rdma_destroy_id(id), 0);
	atomic_store(&gone, 1);
	return NULL;
}

static void destruction_waits(struct rdma_event_channel *channel)
{
	struct rdma_cm_id *id = make_id(channel, NULL, RDMA_PS_TCP);
	struct sockaddr_in to = here(htons(1));
	CHECK_EQ(rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, CM_MS), 0);
	struct rdma_cm_event *event = expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	pthread_t thread;
	CHECK_EQ(pthread_create(&thread, NULL, destroy, id), 0);
	sleep_ms(50);
	CHECK_EQ(atomic_load(&gone), 0);
	CHECK_EQ(rdma_ack_cm_event(event), 0);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK_EQ(atomic_load(&gone), 1);
}

static void connects(struct rdma_event_channel *channel, uint16_t port, char *buffer)
{
	struct rdma_cm_id *id = make_id(channel, NULL, RDMA_PS_TCP);
	resolve(id, port);
	make_pair(id);
	struct ibv_mr *mr = reg(id->pd, buffer, SIZE);
	post_recv(id->qp, mr, SIZE / 2, 512, 1);

	char much[57] = {0};
	struct rdma_conn_param param = {.private_data = much,
					.private_data_len = sizeof much,
					.responder_resources = 3,
					.initiator_depth = 2,
					.retry_count = 5,
					.rnr_retry_count = 6};
	CHECK_EQ(rdma_connect(id, &param), -1);
	CHECK_EQ(errno, EINVAL);
	param.private_data = HELLO;
	param.private_data_len = sizeof HELLO;
	CHECK_EQ(rdma_connect(id, &param), 0);
	struct rdma_cm_event *event = expect(channel, RDMA_CM_EVENT_ESTABLISHED);
	CHECK(event->id == id);
	check_private(event->param.conn.private_data, event->param.conn.private_data_len, 196, WELCOME);
	CHECK_EQ(event->param.conn.responder_resources, 3);
	CHECK_EQ(event->param.conn.initiator_depth, 1);
	struct ibv_qp_attr attr;
	CHECK_EQ(state_of(id->qp, &attr), IBV_QPS_RTS);
	CHECK_EQ(attr.dest_qp_num, event->param.conn.qp_num);
	CHECK_EQ(attr.max_dest_rd_atomic, 3);
	CHECK_EQ(attr.max_rd_atomic, 1);
	CHECK_EQ(attr.retry_cnt, 5);
	CHECK_EQ(attr.rnr_retry, 4);
	CHECK_EQ(rdma_ack_cm_event(event), 0);

	memcpy(buffer, WORK, sizeof WORK);
	post_send(id->qp, mr, 0, sizeof WORK, 2);
	poll_good(id->send_cq, 2);
	poll_good(id->recv_cq, 1);
	CHECK(strcmp(buffer + SIZE / 2, DONE) == 0);

	CHECK_EQ(rdma_disconnect(id), 0);
	CHECK_EQ(state_of(id->qp, &attr), IBV_QPS_ERR);
	pass(channel, RDMA_CM_EVENT_DISCONNECTED);
	CHECK_EQ(rdma_disconnect(id), 0);
	CHECK_EQ(ibv_dereg_mr(mr), 0);
	end(id);
}

static void is_rejected(struct rdma_event_channel *channel, uint16_t port, int reason, unsigned length, const char *text)
{
	struct rdma_cm_id *id = make_id(channel, NULL, RDMA_PS_TCP);
	resolve(id, port);
	make_pair(id);
	CHECK_EQ(rdma_connect(id, NULL), 0);
	struct rdma_cm_event *event = expect(channel, RDMA_CM_EVENT_REJECTED);
	CHECK_EQ(event->status, reason);
	check_private(event->param.conn.private_data, event->param.conn.private_data_len, length, text);
	CHECK_EQ(rdma_ack_cm_event(event), 0);
	struct ibv_qp_attr attr;
	CHECK_EQ(state_of(id->qp, &attr), IBV_QPS_ERR);
	end(id);
}

static void asks(struct rdma_event_channel *channel, uint16_t port, char *buffer)
{
	struct rdma_cm_id *id = make_id(channel, NULL, RDMA_PS_UDP);
	resolve(id, port);
	make_pair(id);
	struct ibv_qp_attr attr;
	CHECK_EQ(state_of(id->qp, &attr), IBV_QPS_RTS);
	CHECK_EQ(attr.qkey, RDMA_UDP_QKEY);
	struct rdma_conn_param param = {.private_data = HELLO, .private_data_len = sizeof HELLO};
	CHECK_EQ(rdma_connect(id, &param), 0);
	struct rdma_cm_event *event = expect(channel, RDMA_CM_EVENT_ESTABLISHED);
	struct rdma_ud_param *ud = &event->param.ud;
	check_private(ud->private_data, ud->private_data_len, 136, WELCOME);
	CHECK_EQ(ud->qkey, RDMA_UDP_QKEY);
	struct ibv_ah *ah = ibv_create_ah(id->pd, &ud->ah_attr);
	CHECK(ah != NULL);
	struct ibv_mr *mr = reg(id->pd, buffer, SIZE);
	memcpy(buffer, WORK, sizeof WORK);
	struct ibv_sge sge = sge_of(mr, 0, sizeof WORK);
	struct ibv_send_wr wr = {.wr_id = 3,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED,
				 .wr.ud = {.ah = ah, .remote_qpn = ud->qp_num, .remote_qkey = ud->qkey}},
			   *bad;
	CHECK_EQ(rdma_ack_cm_event(event), 0);
	CHECK_EQ(ibv_post_send(id->qp, &wr, &bad), 0);
	poll_good(id->send_cq, 3);
	CHECK_EQ(ibv_destroy_ah(ah), 0);
	CHECK_EQ(ibv_dereg_mr(mr), 0);
	end(id);
}

static void client(struct ports ports)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	CHECK(channel != NULL);
	char *buffer = calloc(1, SIZE);
	CHECK(buffer != NULL);
	mistakes(channel);
	destruction_waits(channel);
	connects(channel, ports.tcp, buffer);
	is_rejected(channel, ports.tcp, CONSUMER_REJECT, 148, NO);
	is_rejected(channel, htons(1), NOBODY_LISTENS, 148, "");
	asks(channel, ports.udp, buffer);
	free(buffer);
	rdma_destroy_event_channel(channel);
}

static void is_connected(struct rdma_event_channel *channel, struct rdma_cm_id *listener, char *buffer)
{
	struct rdma_cm_event *event = expect(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *id = event->id;
	CHECK(event->listen_id == listener && id != listener);
	CHECK(id->context == listener->context && id->channel == channel);
	CHECK(id->verbs != NULL && id->verbs == listener->verbs);
	check_private(event->param.conn.private_data, event->param.conn.private_data_len, 56, HELLO);
	CHECK_EQ(event->param.conn.responder_resources, 2);
	CHECK_EQ(event->param.conn.initiator_depth, 3);
	CHECK_EQ(rdma_get_src_port(id), rdma_get_src_port(listener));
	CHECK_EQ(rdma_ack_cm_event(event), 0);

	make_pair(id);
	struct ibv_mr *mr = reg(id->pd, buffer, SIZE);
	post_recv(id->qp, mr, 0, 512, 1);
	struct rdma_conn_param param = {.private_data = WELCOME,
					.private_data_len = sizeof WELCOME,
					.responder_resources = 1,
					.initiator_depth = 3,
					.rnr_retry_count = 4};
	CHECK_EQ(rdma_accept(id, &param), 0);
	CHECK_EQ(rdma_accept(id, &param), -1);
	CHECK_EQ(errno, EINVAL);
	pass(channel, RDMA_CM_EVENT_ESTABLISHED);
	struct ibv_qp_attr attr;
	CHECK_EQ(state_of(id->qp, &attr), IBV_QPS_RTS);
	CHECK_EQ(attr.max_dest_rd_atomic, 1);
	CHECK_EQ(attr.max_rd_atomic, 3);
	CHECK_EQ(attr.retry_cnt, 5);
	CHECK_EQ(attr.rnr_retry, 6);

	poll_good(id->recv_cq, 1);
	CHECK(strcmp(buffer, WORK) == 0);
	memcpy(buffer, DONE, sizeof DONE);
	post_send(id->qp, mr, 0, sizeof DONE, 2);
	poll_good(id->send_cq, 2);

	pass(channel, RDMA_CM_EVENT_DISCONNECTED);
	CHECK_EQ(state_of(id->qp, &attr), IBV_QPS_RTS);
	CHECK_EQ(rdma_disconnect(id), 0);
	CHECK_EQ(state_of(id->qp, &attr), IBV_QPS_ERR);
	CHECK_EQ(ibv_dereg_mr(mr), 0);
	end(id);
}

static void rejects(struct rdma_event_channel *channel)
{
	struct rdma_cm_event *event = expect(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *id = event->id;
	CHECK_EQ(rdma_ack_cm_event(event), 0);
	CHECK_EQ(rdma_reject(id, NO, sizeof NO), 0);
	CHECK_EQ(rdma_destroy_id(id), 0);
}

static void serves(struct rdma_event_channel *channel, char *buffer)
{
	struct rdma_cm_event *event = expect(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *id = event->id;
	CHECK_EQ(id->ps, RDMA_PS_UDP);
	check_private(event->param.ud.private_data, event->param.ud.private_data_len, 180, HELLO);
	CHECK_EQ(rdma_ack_cm_event(event), 0);
	make_pair(id);
	struct ibv_mr *mr = reg(id->pd, buffer, SIZE);
	post_recv(id->qp, mr, 0, SIZE, 1);
	struct rdma_conn_param param = {.private_data = WELCOME, .private_data_len = sizeof WELCOME};
	CHECK_EQ(rdma_accept(id, &param), 0);
	poll_good(id->recv_cq, 1);
	CHECK(strcmp(buffer + GRH, WORK) == 0);
	CHECK_EQ(ibv_dereg_mr(mr), 0);
	end(id);
}

static struct rdma_cm_id *listens(struct rdma_event_channel *channel, enum rdma_port_space space)
{
	struct sockaddr_in any = here(0);
	struct rdma_cm_id *id = make_id(channel, &any, space), *other = make_id(channel, NULL, space);
	CHECK_EQ(rdma_bind_addr(id, (struct sockaddr *)&any), 0);
	CHECK_EQ(rdma_listen(id, 4), 0);
	CHECK(rdma_get_src_port(id) != 0);
	struct sockaddr_in taken = here(rdma_get_src_port(id));
	CHECK_EQ(rdma_bind_addr(other, (struct sockaddr *)&taken), -1);
	CHECK_EQ(errno, EADDRINUSE);
	CHECK_EQ(rdma_destroy_id(other), 0);
	return id;
}

static void server(int out)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	CHECK(channel != NULL);
	struct rdma_cm_id *tcp = listens(channel, RDMA_PS_TCP), *udp = listens(channel, RDMA_PS_UDP);
	struct pollfd ready = {.fd = channel->fd, .events = POLLIN};
	CHECK_EQ(poll(&ready, 1, 0), 0);
	struct ports ports = {rdma_get_src_port(tcp), rdma_get_src_port(udp)};
	CHECK_EQ(write(out, &ports, sizeof ports), sizeof ports);
	CHECK_EQ(poll(&ready, 1, 30000), 1);

	char *buffer = calloc(1, SIZE);
	CHECK(buffer != NULL);
	is_connected(channel, tcp, buffer);
	rejects(channel);
	serves(channel, buffer);
	free(buffer);
	CHECK_EQ(rdma_destroy_id(tcp), 0);
	CHECK_EQ(rdma_destroy_id(udp), 0);
	rdma_destroy_event_channel(channel);
}

int main(void)
{
	alarm(60);
	int pipes[2];
	CHECK_EQ(pipe(pipes), 0);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		alarm(60);
		struct ports ports;
		CHECK_EQ(read(pipes[0], &ports, sizeof ports), sizeof ports);
		client(ports);
		exit(0);
	}
	server(pipes[1]);
	int status;
	CHECK_EQ(waitpid(child, &status, 0), child);
	CHECK_EQ(status, 0);
	return 0;
}
