/* Leaves an open device behind, on purpose: whoever looks for leaks has to find this one. */
#include "common.h"

int main(void)
{
	struct ibv_context *context = open_first();
	CHECK(ibv_alloc_pd(context) != NULL);
	return 0;
}
