/* Waiting for an event goes on after a handler with SA_RESTART, and ends with EINTR after one without: on all three kinds
 * of channels. Whether a thread still waits is looked at after the handler has run in it. */
#include "common.h"

#include <rdma/rdma_cma.h>
#include <signal.h>

static struct ibv_context *context;
static struct ibv_comp_channel *completions;
static struct rdma_event_channel *connections;

static volatile sig_atomic_t restarting, ending;
static volatile int returned, result, why;

static void on_restarting(int signal) { (void)signal; restarting++; }
static void on_ending(int signal) { (void)signal; ending++; }

static int wait_for(long kind)
{
	struct ibv_async_event asynchronous;
	struct rdma_cm_event *connection;
	struct ibv_cq *cq;
	void *of;
	switch (kind) {
	case 0: return ibv_get_cq_event(completions, &cq, &of);
	case 1: return ibv_get_async_event(context, &asynchronous);
	default: return rdma_get_cm_event(connections, &connection);
	}
}

static void *waiter(void *kind)
{
	int got = wait_for((long)kind);
	why = errno;
	result = got;
	__atomic_store_n(&returned, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

static void install(int signal, void (*handler)(int), int flags)
{
	struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
	CHECK_EQ(sigaction(signal, &action, NULL), 0);
}

int main(void)
{
	context = open_first();
	completions = ibv_create_comp_channel(context);
	connections = rdma_create_event_channel();
	CHECK(completions != NULL && connections != NULL);
	for (long kind = 0; kind < 3; kind++) {
		restarting = ending = 0;
		returned = 0;
		install(SIGUSR1, on_restarting, SA_RESTART);
		install(SIGUSR2, SIG_DFL, 0);
		pthread_t thread;
		CHECK_EQ(pthread_create(&thread, NULL, waiter, (void *)kind), 0);
		for (int n = 1; n <= 5; n++) {
			sleep_ms(20);
			CHECK_EQ(pthread_kill(thread, SIGUSR1), 0);
			while (restarting < n)
				sleep_ms(1);
		}
		sleep_ms(50);
		CHECK_EQ(__atomic_load_n(&returned, __ATOMIC_SEQ_CST), 0);
		install(SIGUSR2, on_ending, 0);
		CHECK_EQ(pthread_kill(thread, SIGUSR2), 0);
		/* Again, should the first have come between two sleeps: who waits busily sleeps for a microsecond in fifty. */
		while (!__atomic_load_n(&returned, __ATOMIC_SEQ_CST)) {
			sleep_ms(1);
			if (!__atomic_load_n(&returned, __ATOMIC_SEQ_CST))
				pthread_kill(thread, SIGUSR2);
		}
		CHECK_EQ(pthread_join(thread, NULL), 0);
		CHECK(ending > 0);
		CHECK_EQ(result, -1);
		CHECK_EQ(why, EINTR);
	}
	rdma_destroy_event_channel(connections);
	CHECK_EQ(ibv_destroy_comp_channel(completions), 0);
	CHECK_EQ(ibv_close_device(context), 0);
	return 0;
}
