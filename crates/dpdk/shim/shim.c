#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>

#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_log.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <rte_ring.h>

#include "shim.h"

/* mbuf.rs relies on these; a DPDK where they differ must not compile. */
_Static_assert(sizeof(struct rte_mbuf) == 128, "size of an mbuf");
_Static_assert(offsetof(struct rte_mbuf, buf_addr) == 0, "buf_addr");
_Static_assert(offsetof(struct rte_mbuf, data_off) == 16, "data_off");
_Static_assert(offsetof(struct rte_mbuf, refcnt) == 18, "refcnt");
_Static_assert(offsetof(struct rte_mbuf, nb_segs) == 20, "nb_segs");
_Static_assert(offsetof(struct rte_mbuf, port) == 22, "port");
_Static_assert(offsetof(struct rte_mbuf, ol_flags) == 24, "ol_flags");
_Static_assert(offsetof(struct rte_mbuf, pkt_len) == 36, "pkt_len");
_Static_assert(offsetof(struct rte_mbuf, data_len) == 40, "data_len");
_Static_assert(offsetof(struct rte_mbuf, hash.fdir.hi) == 48, "upper half of the hash");
_Static_assert(offsetof(struct rte_mbuf, buf_len) == 54, "buf_len");
_Static_assert(offsetof(struct rte_mbuf, pool) == 56, "pool");
_Static_assert(offsetof(struct rte_mbuf, next) == 64, "next");
_Static_assert(RTE_MBUF_F_INDIRECT == 1ULL << 62, "indirect flag");
_Static_assert(RTE_MBUF_F_EXTERNAL == 1ULL << 61, "external flag");
_Static_assert(RTE_PKTMBUF_HEADROOM == 128, "headroom");
_Static_assert(RTE_CACHE_LINE_SIZE == 64, "cache line");
_Static_assert(RTE_MEMPOOL_CACHE_MAX_SIZE >= 512, "per-thread cache of a pool");

const uint64_t lr_rx_offload_scatter = RTE_ETH_RX_OFFLOAD_SCATTER;
const uint64_t lr_rx_offload_rss_hash = RTE_ETH_RX_OFFLOAD_RSS_HASH;
const uint64_t lr_tx_offload_multi_segs = RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
const uint64_t lr_rss_ip = RTE_ETH_RSS_IP;
const uint64_t lr_rss_tcp = RTE_ETH_RSS_TCP;
const uint64_t lr_rss_udp = RTE_ETH_RSS_UDP;
const uint64_t lr_rss_sctp = RTE_ETH_RSS_SCTP;
const uint32_t lr_mq_rx_rss = RTE_ETH_MQ_RX_RSS;
const uint32_t lr_ring_single = RING_F_SP_ENQ | RING_F_SC_DEQ;
const uint16_t lr_max_ports = RTE_MAX_ETHPORTS;

int lr_errno(void)
{
	return rte_errno;
}

static void (*log_line)(const char *text, size_t len);

static ssize_t log_write(void *cookie, const char *text, size_t len)
{
	(void)cookie;
	log_line(text, len);
	return (ssize_t)len;
}

static FILE *log_stream(void)
{
	cookie_io_functions_t io = { .write = log_write };
	FILE *file = fopencookie(NULL, "w", io);

	if (file != NULL)
		setvbuf(file, NULL, _IOLBF, 512);
	return file;
}

int lr_log_to(void (*line)(const char *text, size_t len))
{
	FILE *file;

	log_line = line;
	file = log_stream();
	if (file == NULL)
		return -errno;
	return rte_openlog_stream(file);
}

int lr_eal_init(int argc, char **argv)
{
	/* Nothing else in the process writes by C's streams. */
	FILE *out = stdout, *err = stderr;
	FILE *nowhere = fopen("/dev/null", "w");
	FILE *log = log_stream();
	int rc;

	if (nowhere != NULL)
		stdout = nowhere;
	if (log != NULL)
		stderr = log;
	rc = rte_eal_init(argc, argv);
	stdout = out;
	stderr = err;
	if (nowhere != NULL)
		fclose(nowhere);
	if (log != NULL)
		fclose(log);
	return rc;
}

uint16_t lr_rx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **pkts, uint16_t n)
{
	return rte_eth_rx_burst(port, queue, pkts, n);
}

uint16_t lr_tx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **pkts, uint16_t n)
{
	return rte_eth_tx_burst(port, queue, pkts, n);
}

struct rte_mbuf *lr_mbuf_alloc(struct rte_mempool *pool)
{
	return rte_pktmbuf_alloc(pool);
}

int lr_mbuf_alloc_bulk(struct rte_mempool *pool, struct rte_mbuf **pkts, unsigned int n)
{
	return rte_pktmbuf_alloc_bulk(pool, pkts, n);
}

void lr_mbuf_free(struct rte_mbuf *m)
{
	rte_pktmbuf_free(m);
}

void lr_mbuf_free_segment(struct rte_mbuf *m)
{
	rte_pktmbuf_free_seg(m);
}

void lr_pool_flush(struct rte_mempool *pool)
{
	struct rte_mempool_cache *cache = rte_mempool_default_cache(pool, rte_lcore_id());

	if (cache != NULL)
		rte_mempool_cache_flush(cache, pool);
}

unsigned int lr_ring_drain(struct rte_ring *ring, void **objects, unsigned int n)
{
	return rte_ring_dequeue_burst(ring, objects, n, NULL);
}

int lr_link_get(uint16_t port, struct lr_link *out)
{
	struct rte_eth_link link;
	int rc;

	memset(&link, 0, sizeof(link));
	rc = rte_eth_link_get_nowait(port, &link);
	if (rc < 0)
		return rc;
	out->mbps = link.link_speed;
	out->up = link.link_status == RTE_ETH_LINK_UP;
	out->full_duplex = link.link_duplex == RTE_ETH_LINK_FULL_DUPLEX;
	out->autoneg = link.link_autoneg == RTE_ETH_LINK_AUTONEG;
	return 0;
}
