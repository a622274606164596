/* Comparison peers for the lookup benchmark: DPDK's own FIB libraries behind functions that take only opaque
 * pointers and scalars, so that the Rust side needs no generated bindings. */
#include <stdint.h>
#include <string.h>

#include <rte_config.h>
#include <rte_acl.h>
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

/* rte_acl over five-tuples. IPv4 takes one field for each address, IPv6 four. */
enum { LR_ACL_PROTO, LR_ACL_SRC, LR_ACL_MAX_FIELDS = 1 + 4 + 4 + 2 };

RTE_ACL_RULE_DEF(lr_acl_rule, LR_ACL_MAX_FIELDS);

/* Fields of a key: protocol at 0, addresses from 4, ports behind them; everything in network byte order. */
static int lr_acl_fields(int six, struct rte_acl_field_def *defs)
{
	int words = six ? 4 : 1, n = 0, i;

	defs[n++] = (struct rte_acl_field_def){RTE_ACL_FIELD_TYPE_BITMASK, 1, LR_ACL_PROTO, 0, 0};
	for (i = 0; i < 2 * words; i++, n++)
		defs[n] = (struct rte_acl_field_def){RTE_ACL_FIELD_TYPE_MASK, 4, n, n, 4 + 4 * i};
	/* Both ports are one four-byte input. */
	defs[n] = (struct rte_acl_field_def){RTE_ACL_FIELD_TYPE_RANGE, 2, n, 1 + 2 * words, 4 + 8 * words};
	n++;
	defs[n] = (struct rte_acl_field_def){RTE_ACL_FIELD_TYPE_RANGE, 2, n, 1 + 2 * words, 6 + 8 * words};
	return n + 1;
}

void *lr_peers_acl_create(const char *name, int six, uint32_t rules, int *err)
{
	struct rte_acl_param param = {
		.name = name,
		.socket_id = SOCKET_ID_ANY,
		.rule_size = RTE_ACL_RULE_SZ(six ? 11 : 5),
		.max_rule_num = rules,
	};
	struct rte_acl_ctx *acl = rte_acl_create(&param);

	*err = acl == NULL ? rte_errno : 0;
	return acl;
}

void lr_peers_acl_free(void *acl) { rte_acl_free(acl); }

/* words: 1 or 4 for each address, host byte order; lens: bits of each that count. */
int lr_peers_acl_add(void *acl, int six, int32_t priority, uint32_t userdata, uint8_t proto, uint8_t proto_mask,
		     const uint32_t *words, const uint8_t *lens, const uint16_t *ports)
{
	struct lr_acl_rule rule;
	int n = six ? 8 : 2, i;

	memset(&rule, 0, sizeof(rule));
	rule.data.category_mask = 1;
	rule.data.priority = priority;
	rule.data.userdata = userdata;
	rule.field[LR_ACL_PROTO].value.u8 = proto;
	rule.field[LR_ACL_PROTO].mask_range.u8 = proto_mask;
	for (i = 0; i < n; i++) {
		rule.field[LR_ACL_SRC + i].value.u32 = words[i];
		rule.field[LR_ACL_SRC + i].mask_range.u32 = lens[i];
	}
	for (i = 0; i < 2; i++) {
		rule.field[LR_ACL_SRC + n + i].value.u16 = ports[2 * i];
		rule.field[LR_ACL_SRC + n + i].mask_range.u16 = ports[2 * i + 1];
	}
	return rte_acl_add_rules(acl, (struct rte_acl_rule *)&rule, 1);
}

/* max_size: bytes the tables may take, 0 for no limit. */
int lr_peers_acl_build(void *acl, int six, size_t max_size)
{
	struct rte_acl_config config;

	memset(&config, 0, sizeof(config));
	config.num_categories = 1;
	config.num_fields = lr_acl_fields(six, config.defs);
	config.max_size = max_size;
	return rte_acl_build(acl, &config);
}

/* Keys of `stride` bytes; results 0 where no rule matches. alg: 0 scalar, 1 AVX2, 2 AVX-512 x 16, 3 AVX-512 x 32. */
int lr_peers_acl_classify(void *acl, int alg, const uint8_t *keys, uint32_t stride, uint32_t *results, uint32_t n)
{
	static const enum rte_acl_classify_alg algs[] = {RTE_ACL_CLASSIFY_SCALAR, RTE_ACL_CLASSIFY_AVX2,
							 RTE_ACL_CLASSIFY_AVX512X16, RTE_ACL_CLASSIFY_AVX512X32};
	const uint8_t *data[64];
	uint32_t done = 0, i, some;
	int rc = 0;

	for (; done < n && rc == 0; done += some) {
		some = n - done < 64 ? n - done : 64;
		for (i = 0; i < some; i++)
			data[i] = keys + (size_t)(done + i) * stride;
		rc = rte_acl_classify_alg(acl, data, results + done, some, 1, algs[alg]);
	}
	return rc;
}
