/* What to look at before a program moves to another device. */
#include "book.h"

#include <arpa/inet.h>

/* ANCHOR: ports */
static void ports(struct ibv_context *context, int count)
{
	for (int port = 1; port <= count; port++) {
		struct ibv_port_attr attr;
		MUST(ibv_query_port(context, port, &attr));
		printf("  port %d            %s\n", port,
		       attr.state == IBV_PORT_ACTIVE ? "active" : "NOT ACTIVE: no cable, or no link");
		printf("  path MTU          up to %d bytes\n", 128 << attr.active_mtu);
		struct ibv_gid_entry gids[64];
		ssize_t found = ibv_query_gid_table(context, gids, 64, 0);
		int shown = 0;
		for (ssize_t i = 0; i < found && !shown; i++) {
			const uint8_t *raw = gids[i].gid.raw;
			static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
			if (gids[i].port_num != (uint32_t)port || gids[i].gid_type != IBV_GID_TYPE_ROCE_V2 ||
			    memcmp(raw, mapped, sizeof mapped))
				continue;
			char text[INET_ADDRSTRLEN];
			inet_ntop(AF_INET, raw + 12, text, sizeof text);
			printf("  GID index         %u is RoCE v2 over IPv4: %s\n", gids[i].gid_index, text);
			shown = 1;
		}
		if (!shown && attr.link_layer == IBV_LINK_LAYER_ETHERNET)
			printf("  GID index         NONE for RoCE v2 over IPv4: has the interface an address?\n");
		else if (!shown)
			printf("  LID               %d\n", attr.lid);
	}
}
/* ANCHOR_END: ports */

int main(void)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	int count = 0;
	struct ibv_device **list = must("ibv_get_device_list", ibv_get_device_list(&count));
	for (int i = 0; i < count; i++) {
		printf("%s (Software)\n", ibv_get_device_name(list[i]));
		struct ibv_context *context = ibv_open_device(list[i]);
		if (!context) {
			printf("  cannot be opened: %s\n", strerror(errno));
			continue;
		}
		/* ANCHOR: limits */
		struct ibv_device_attr attr;
		MUST(ibv_query_device(context, &attr));
		ports(context, attr.phys_port_cnt);
		printf("  one queue         up to %d requests of %d pieces\n", attr.max_qp_wr, attr.max_sge);
		printf("  completion queue  up to %d entries\n", attr.max_cqe);
		printf("  reads at a time   %d served, %d started\n", attr.max_qp_rd_atom, attr.max_qp_init_rd_atom);
		printf("  atomics           %s\n",
		       attr.atomic_cap == IBV_ATOMIC_NONE  ? "none"
		       : attr.atomic_cap == IBV_ATOMIC_HCA ? "among requests of this device only, not with the processor's"
							   : "with the processor's, too");
		/* ANCHOR_END: limits */
		MUST(ibv_close_device(context));
	}
	ibv_free_device_list(list);
	return 0;
}
