/* DPDK's static inlines, thread-local variables and macros as plain functions and constants. Per burst, not per
 * packet, wherever the data path calls them. */
#ifndef LINERATE_DPDK_SHIM_H
#define LINERATE_DPDK_SHIM_H

#include <stddef.h>
#include <stdint.h>

struct rte_mbuf;
struct rte_mempool;
struct rte_ring;

/* constants that are macros or casts in DPDK's headers */
extern const uint64_t lr_rx_offload_scatter;
extern const uint64_t lr_rx_offload_rss_hash;
extern const uint64_t lr_tx_offload_multi_segs;
extern const uint64_t lr_rss_ip;
extern const uint64_t lr_rss_tcp;
extern const uint64_t lr_rss_udp;
extern const uint64_t lr_rss_sctp;
extern const uint32_t lr_mq_rx_rss;
extern const uint32_t lr_ring_single;
extern const uint16_t lr_max_ports;

/* rte_errno of the calling thread */
int lr_errno(void);

/* Sends all of DPDK's log to `line`, called with whole writes; 0 or -errno. */
int lr_log_to(void (*line)(const char *text, size_t len));

/* rte_eal_init, after lr_log_to: what it writes to standard error goes to the log as well, and what it writes to standard
 * output nowhere: a page of usage for an argument that it does not take. */
int lr_eal_init(int argc, char **argv);

uint16_t lr_rx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **pkts, uint16_t n);
uint16_t lr_tx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **pkts, uint16_t n);

struct rte_mbuf *lr_mbuf_alloc(struct rte_mempool *pool);
int lr_mbuf_alloc_bulk(struct rte_mempool *pool, struct rte_mbuf **pkts, unsigned int n);
void lr_mbuf_free(struct rte_mbuf *m);
/* One segment: gives up the reference to it, and what follows it stays. */
void lr_mbuf_free_segment(struct rte_mbuf *m);

/* Returns what the calling thread's cache of `pool` holds to the pool. */
void lr_pool_flush(struct rte_mempool *pool);

/* Takes up to n objects off a ring whose users are gone. */
unsigned int lr_ring_drain(struct rte_ring *ring, void **objects, unsigned int n);

struct lr_link {
	uint32_t mbps; /* 0 none, UINT32_MAX unknown */
	uint8_t up;
	uint8_t full_duplex;
	uint8_t autoneg;
};

int lr_link_get(uint16_t port, struct lr_link *out);

#endif
