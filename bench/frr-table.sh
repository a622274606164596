#!/usr/bin/env bash
# A whole table from BGP to the FIB: BIRD announces it, FRR's bgpd and zebra take it, FPM hands it to linerate.
# Prints when FRR had sent its last byte, and how long after that the last route was in the FIB. See docs/router.md.
#
#   frr-table.sh [TABLE]
#
# TABLE: lines of `prefix ...` (IPv4), plain or gzip. Default: bgp-ipv4.txt.gz in $LINERATE_ROUTES, or, where there is none, a
# generated table of 500,000 routes. Needs root. Environment:
#   LINERATE         the binary (default: the release build beside this script)
#   LINERATE_ROUTES  where routing tables are
#   WORKER_CPU       the worker's CPU (default: the last)
#   SECONDS_AT_MOST  give up after so long (default 300)
#
# Exit code 0 only if all routes are in the FIB, and the last no later than 1 s after FRR's last byte. The last line is one
# JSON object.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
linerate=${LINERATE:-$here/target/release/linerate}
routes=${LINERATE_ROUTES:-$here/../shared/data}
table=${1:-$routes/bgp-ipv4.txt.gz}
if [[ $# -eq 0 && ! -e $table ]]; then table=; fi
if [[ $EUID -ne 0 ]]; then
    echo "frr-table.sh: namespaces and taps need root" >&2
    exit 1
fi
missing=()
for need in /usr/lib/frr/bgpd:frr /usr/sbin/bird:bird2 /usr/bin/tcpdump:tcpdump /usr/sbin/ethtool:ethtool \
    /usr/bin/python3:python3-minimal; do
    [[ -x ${need%%:*} ]] || missing+=("${need##*:}")
done
if ((${#missing[@]})); then
    echo "installing ${missing[*]}" >&2
    # Without the daemons that packages would start: they are started here, in namespaces.
    policy=/usr/sbin/policy-rc.d
    if [[ ! -e $policy ]]; then
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod +x "$policy"
        trap 'rm -f "$policy"' EXIT
    fi
    apt-get install -y --no-install-recommends "${missing[@]}" >&2
fi
python3 "$here/bench/frr_table.py" --linerate "$linerate" --table "$table" \
    --cpu "${WORKER_CPU:-$(($(nproc) - 1))}" --seconds "${SECONDS_AT_MOST:-300}"
