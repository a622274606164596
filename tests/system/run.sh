#!/usr/bin/env bash
# System tests: network namespaces, foreign peers. Needs root; LINERATE names the binary (default: the release build).
set -euo pipefail
cd "$(dirname "$0")"
export LINERATE=${LINERATE:-$(cd ../.. && pwd)/target/release/linerate}
if [[ $(id -u) != 0 ]]; then
    echo "system tests SKIPPED: they make network namespaces, which needs root (sudo make system)" >&2
    exit 0
fi
exec /usr/bin/python3 -B -m pytest -p no:cacheprovider -q --color=no -rs "$@"
