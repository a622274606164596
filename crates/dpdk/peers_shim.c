/* Comparison peers for the lookup benchmark: DPDK's own FIB libraries behind functions that take only opaque
 * pointers and scalars, so that the Rust side needs no generated bindings. */
#include <stdint.h>
#include <string.h>

#include <rte_config.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_fib.h>
#include <rte_fib6.h>
#include <rte_memory.h>

int lr_peers_eal_init(int argc, char **argv) { return rte_eal_init(argc, argv) < 0 ? -rte_errno : 0; }

/* bytes: 2 or 4, as in one table entry. NULL on failure, with the reason in *err. */
void *lr_peers_fib_create(const char *name, unsigned bytes, int max_routes, uint32_t tbl8s, int *err)
{
	struct rte_fib_conf conf;
	struct rte_fib *fib;

	memset(&conf, 0, sizeof(conf));
	conf.type = RTE_FIB_DIR24_8;
	conf.max_routes = max_routes;
	conf.dir24_8.nh_sz = bytes == 2 ? RTE_FIB_DIR24_8_2B : RTE_FIB_DIR24_8_4B;
	conf.dir24_8.num_tbl8 = tbl8s;
	fib = rte_fib_create(name, SOCKET_ID_ANY, &conf);
	*err = fib == NULL ? rte_errno : 0;
	return fib;
}

void lr_peers_fib_free(void *fib) { rte_fib_free(fib); }

int lr_peers_fib_add(void *fib, uint32_t ip, uint8_t depth, uint64_t nh) { return rte_fib_add(fib, ip, depth, nh); }

int lr_peers_fib_delete(void *fib, uint32_t ip, uint8_t depth) { return rte_fib_delete(fib, ip, depth); }

/* vector: 0 scalar (the variant made for this entry size), 1 AVX-512. */
int lr_peers_fib_select(void *fib, int vector)
{
	return rte_fib_select_lookup(fib, vector ? RTE_FIB_LOOKUP_DIR24_8_VECTOR_AVX512
						 : RTE_FIB_LOOKUP_DIR24_8_SCALAR_MACRO);
}

int lr_peers_fib_lookup(void *fib, const uint32_t *ips, uint64_t *nhs, int n)
{
	return rte_fib_lookup_bulk(fib, (uint32_t *)(uintptr_t)ips, nhs, n);
}

void *lr_peers_fib6_create(const char *name, int max_routes, uint32_t tbl8s, int *err)
{
	struct rte_fib6_conf conf;
	struct rte_fib6 *fib;

	memset(&conf, 0, sizeof(conf));
	conf.type = RTE_FIB6_TRIE;
	conf.max_routes = max_routes;
	conf.trie.nh_sz = RTE_FIB6_TRIE_4B;
	conf.trie.num_tbl8 = tbl8s;
	fib = rte_fib6_create(name, SOCKET_ID_ANY, &conf);
	*err = fib == NULL ? rte_errno : 0;
	return fib;
}

void lr_peers_fib6_free(void *fib) { rte_fib6_free(fib); }

int lr_peers_fib6_add(void *fib, const uint8_t *ip, uint8_t depth, uint64_t nh)
{
	return rte_fib6_add(fib, ip, depth, nh);
}

int lr_peers_fib6_delete(void *fib, const uint8_t *ip, uint8_t depth) { return rte_fib6_delete(fib, ip, depth); }

int lr_peers_fib6_select(void *fib, int vector)
{
	return rte_fib6_select_lookup(fib, vector ? RTE_FIB6_LOOKUP_TRIE_VECTOR_AVX512
						  : RTE_FIB6_LOOKUP_TRIE_SCALAR);
}

int lr_peers_fib6_lookup(void *fib, const uint8_t *ips, uint64_t *nhs, int n)
{
	return rte_fib6_lookup_bulk(fib, (uint8_t (*)[RTE_FIB6_IPV6_ADDR_SIZE])(uintptr_t)ips, nhs, n);
}
