/* No byte outside a registered region changes, whatever the peer asks for, at every alignment and around every packet
 * boundary; and inside it exactly the bytes change that the operation names. */
#include "common.h"

enum { SPACE = 64 * 1024, MTU = 1024 };

static unsigned char target[SPACE], source[SPACE];

static void fill(void)
{
	memset(target, 0xA5, sizeof target);
	for (size_t i = 0; i < sizeof source; i++)
		source[i] = (unsigned char)(i * 31 + 7) == 0xA5 ? 0 : (unsigned char)(i * 31 + 7);
}

/* Everything but [from, from + length) still has the old value; that range has the source's bytes. */
static void check_only(size_t from, size_t length)
{
	for (size_t i = 0; i < sizeof target; i++) {
		unsigned char wanted = i >= from && i < from + length ? source[i - from] : 0xA5;
		if (target[i] != wanted)
			FAIL("byte %zu is %02x, not %02x (operation on %zu + %zu)", i, target[i], wanted, from, length);
	}
}

int main(void)
{
	struct ibv_context *context = open_first();
	static const uint32_t lengths[] = {0, 1, 7, 8, 9, 63, MTU - 1, MTU, MTU + 1, 3 * MTU - 1, 3 * MTU, 40001};
	static const size_t starts[] = {4096, 4097, 4103, 8191};

	for (size_t s = 0; s < sizeof starts / sizeof *starts; s++) {
		for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
			size_t start = starts[s];
			uint32_t length = lengths[l];
			struct end a = make_end(context, NULL, 0), b = make_end(context, NULL, 0);
			connect_qps(context, a.qp, b.qp);
			struct ibv_mr *from = reg(a.pd, source, sizeof source);
			/* The region is exactly as large as the operation (at least one byte: there are no empty regions). */
			struct ibv_mr *to = reg(b.pd, target + start, length ? length : 1);
			uint64_t remote = (uintptr_t)target + start;

			fill();
			post_rdma(a.qp, IBV_WR_RDMA_WRITE, from, length, remote, to->rkey, 1);
			poll_good(a.send_cq, 1);
			check_only(start, length);

			fill();
			post_recv(b.qp, to, 0, length, 2);
			post_send(a.qp, from, 0, length, 3);
			poll_good(a.send_cq, 3);
			CHECK_EQ(poll_good(b.recv_cq, 2).byte_len, length);
			check_only(start, length);

			/* READ: b fetches a's bytes into its region. */
			fill();
			post_rdma(b.qp, IBV_WR_RDMA_READ, to, length, (uintptr_t)source, from->rkey, 4);
			poll_good(b.send_cq, 4);
			check_only(start, length);

			/* One byte too many: refused, and nothing at all is written. */
			fill();
			if (length) {
				post_rdma(a.qp, IBV_WR_RDMA_WRITE, from, length + 1, remote, to->rkey, 5);
				CHECK_EQ(poll_one(a.send_cq).status, IBV_WC_REM_ACCESS_ERR);
				check_only(0, 0);
			}
			CHECK_EQ(ibv_dereg_mr(from), 0);
			CHECK_EQ(ibv_dereg_mr(to), 0);
			end_end(&a);
			end_end(&b);
		}
	}

	/* A region that is gone is out of reach, for good. */
	struct end a = make_end(context, NULL, 0), b = make_end(context, NULL, 0);
	connect_qps(context, a.qp, b.qp);
	struct ibv_mr *from = reg(a.pd, source, sizeof source), *to = reg(b.pd, target, sizeof target);
	uint32_t old = to->rkey;
	CHECK_EQ(ibv_dereg_mr(to), 0);
	to = reg(b.pd, target, 64);
	CHECK(to->rkey != old);
	fill();
	post_rdma(a.qp, IBV_WR_RDMA_WRITE, from, 8, (uintptr_t)target, old, 6);
	CHECK_EQ(poll_one(a.send_cq).status, IBV_WC_REM_ACCESS_ERR);
	check_only(0, 0);
	CHECK_EQ(ibv_dereg_mr(from), 0);
	CHECK_EQ(ibv_dereg_mr(to), 0);
	end_end(&a);
	end_end(&b);
	CHECK_EQ(ibv_close_device(context), 0);
	return 0;
}
