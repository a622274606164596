#!/usr/bin/env bash
# System tests: network namespaces, foreign peers. Needs root; LINERATE names the binary (default: the release build).
# Without root they are skipped, loudly; under CI (the variable CI is set) that is a failure: nothing was tested.
set -euo pipefail
cd "$(dirname "$0")"
export LINERATE=${LINERATE:-$(cd ../.. && pwd)/target/release/linerate}

cannot() {
    if [[ -n ${CI:-} && ${CI:-} != false ]]; then
        echo "system tests CANNOT RUN: $*" >&2
        exit 1
    fi
    echo "system tests SKIPPED: $*" >&2
    exit 0
}

[[ $(id -u) == 0 ]] || cannot "they make network namespaces, which needs root (sudo make system)"
probe=lrprobe$$
ip netns add "$probe" 2>/dev/null || cannot "this host lets nobody make network namespaces (a container without CAP_SYS_ADMIN?)"
ip netns del "$probe"
[[ -x $LINERATE ]] || { echo "system tests: there is no binary $LINERATE (make build)" >&2; exit 1; }
exec /usr/bin/python3 -B -m pytest -p no:cacheprovider -q --color=no -rs "$@"
