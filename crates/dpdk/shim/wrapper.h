/* What bindgen reads. */
#include <rte_version.h>
#include <rte_eal.h>
#include <rte_dev.h>
#include <rte_lcore.h>
#include <rte_cycles.h>
#include <rte_mempool.h>
#include <rte_mbuf.h>
#include <rte_ring.h>
#include <rte_ethdev.h>
#include <rte_eth_ring.h>
#include "shim.h"
