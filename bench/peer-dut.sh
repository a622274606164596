#!/usr/bin/env bash
# linerate as the program under test between two net_pcap devices that replay frames for ever and drop what is sent:
# one worker, DPDK telemetry on, every frame answered by a route. See bench/README.md.
#
#   peer-dut.sh FRAMES0.pcap FRAMES1.pcap FILE_PREFIX TRAFFIC
#
# TRAFFIC begins with v4-one, v4-16, v4-full, v6-16 or v6-full and picks the routing table. Environment:
#   LINERATE        the binary (default: the release build beside this script)
#   LINERATE_ROUTES where bgp-ipv4.txt.gz and bgp-ipv6.txt.gz are, for the full tables
#   WORKER_CPU      the worker's CPU (default 1)
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
frames0=$1 frames1=$2 prefix=$3 traffic=$4
linerate=${LINERATE:-$here/target/release/linerate}
routes=${LINERATE_ROUTES:-$here/../shared/data}
config=$(mktemp --tmpdir "$prefix-XXXXXX.toml")
trap 'rm -f "$config"' EXIT

gateway() { # family, port
    if [[ $1 == v4 ]]; then echo "172.31.$2.2"; else echo "fd00:0:0:$2::2"; fi
}

{
    cat <<TOML
[dpdk]
memory = "hugepages"
memory_mb = 420
file_prefix = "$prefix"
telemetry = true

[api]
socket = "/run/$prefix.sock"

[[worker]]
cpu = ${WORKER_CPU:-1}
idle = "spin"
TOML
    for p in 0 1; do
        frames=frames$p
        cat <<TOML

[[port]]
name = "p$p"
device = "net_pcap$p,rx_pcap=${!frames},infinite_rx=1"

[[interface]]
name = "if$p"
port = "p$p"
addresses = ["172.31.$p.1/24", "fd00:0:0:$p::1/64"]
TOML
        for family in v4 v6; do
            printf '\n[[neighbor]]\ninterface = "if%s"\naddress = "%s"\nmac = "02:0a:00:00:00:0%s"\n' \
                "$p" "$(gateway $family $p)" "$p"
        done
    done
    family=${traffic:0:2}
    case $traffic in
        v?-one*|v?-16*)
            count=16
            [[ $traffic == v?-one* ]] && count=1
            for ((i = 0; i < count; i++)); do
                if [[ $family == v4 ]]; then net="198.18.$i.0/24"; else net=$(printf '2001:db8:0:%x::/64' "$i"); fi
                printf '\n[[route]]\nprefix = "%s"\nvia = "%s"\n' "$net" "$(gateway "$family" $((i % 2)))"
            done ;;
        v?-full*)
            file=bgp-ipv4.txt.gz
            [[ $family == v6 ]] && file=bgp-ipv6.txt.gz
            printf '\n[[rib]]\nfile = "%s/%s"\n[rib.next_hop]\n' "$routes" "$file"
            for ((i = 1; i <= 64; i++)); do echo "$i = \"$(gateway "$family" $((i % 2)))\""; done ;;
        *)  echo "peer-dut.sh: unknown traffic $traffic" >&2; exit 2 ;;
    esac
} > "$config"

# exec keeps the process id that the harness measures; the configuration is read before the file goes.
( sleep 30; rm -f "$config" ) &
trap - EXIT
exec "$linerate" run "$config"
