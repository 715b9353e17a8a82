/* One thread that keeps a window of messages in flight and computes between two polls. */
#include "book.h"

enum { MESSAGES = 200, WINDOW = 8, SIZE = 4096 };

static int is_prime(unsigned n)
{
	for (unsigned d = 2; d * d <= n; d++)
		if (n % d == 0)
			return 0;
	return n > 1;
}

static void post_part(struct ibv_qp *qp, const struct ibv_mr *mr, uint64_t slot)
{
	struct ibv_sge sge = piece(mr, slot * SIZE, SIZE);
	struct ibv_send_wr wr = {.wr_id = slot,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED};
	struct ibv_send_wr *bad;
	MUST(ibv_post_send(qp, &wr, &bad));
}

static void post_room(struct ibv_qp *qp, const struct ibv_mr *mr, uint64_t slot)
{
	struct ibv_sge sge = piece(mr, slot * SIZE, SIZE);
	struct ibv_recv_wr wr = {.wr_id = slot, .sg_list = &sge, .num_sge = 1}, *bad;
	MUST(ibv_post_recv(qp, &wr, &bad));
}

int main(void)
{
	struct ibv_context *context = open_first();
	struct ibv_pd *pd = must("ibv_alloc_pd", ibv_alloc_pd(context));
	struct ibv_cq *cq = make_cq(context, NULL);
	struct ibv_qp *a = make_qp(pd, cq, cq), *b = make_qp(pd, cq, cq);
	connect_both(context, a, b);
	static char out[WINDOW * SIZE], in[WINDOW * SIZE];
	struct ibv_mr *out_mr = reg(pd, out, sizeof out, 0);
	struct ibv_mr *in_mr = reg(pd, in, sizeof in, IBV_ACCESS_LOCAL_WRITE);
	uint64_t free_slots[WINDOW];
	int free_count = 0;
	for (uint64_t slot = 0; slot < WINDOW; slot++) {
		post_room(b, in_mr, slot);
		free_slots[free_count++] = slot;
	}

	int posted = 0, sent = 0, received = 0, most = 0;
	unsigned units = 0, primes = 0;
	/* ANCHOR: loop */
	while (sent < MESSAGES || received < MESSAGES) {
		/* Fill the window. */
		while (posted < MESSAGES && free_count > 0) {
			post_part(a, out_mr, free_slots[--free_count]);
			posted++;
		}
		if (posted - sent > most)
			most = posted - sent;

		/* Our own work, in pieces of a few microseconds. */
		primes += is_prime(++units);

		/* What is over is over; nothing is no reason to wait. */
		struct ibv_wc wc[16];
		int found = ibv_poll_cq(cq, 16, wc);
		MUST(found < 0);
		for (int i = 0; i < found; i++) {
			MUST(wc[i].status);
			if (wc[i].opcode == IBV_WC_RECV) {
				received++;
				post_room(b, in_mr, wc[i].wr_id);
			} else {
				sent++;
				free_slots[free_count++] = wc[i].wr_id;
			}
		}
	}
	/* ANCHOR_END: loop */
	printf("sent and received   %d and %d messages\n", sent, received);
	printf("in flight           %d at most\n", most);
	printf("meanwhile           %u numbers looked at, %u of them primes\n", units, primes);
	return 0;
}
