#!/usr/bin/env bash
# Installs what is missing, and nothing otherwise.
#   scripts/setup.sh          what building and running need
#   scripts/setup.sh test     what the tests need as well
set -euo pipefail
cd "$(dirname "$0")/.."
want=${1:-build}

say() { printf 'setup: %s\n' "$*" >&2; }

packages=()
while read -r name kind _; do
    [[ -z $name || $name == \#* ]] && continue
    [[ ${kind:-build} == build || $want == test ]] || continue
    [[ $(dpkg-query -W -f='${Status}' "$name" 2>/dev/null) == 'install ok installed' ]] || packages+=("$name")
done < packages.txt

if (( ${#packages[@]} )); then
    root=()
    if [[ $(id -u) != 0 ]]; then
        if ! command -v sudo >/dev/null; then
            say "these Debian packages are missing and this user may not install them: ${packages[*]}"
            exit 1
        fi
        root=(sudo)
    fi
    say "installing ${packages[*]}"
    # Tests start daemons where they need them; installing shall not start any on this host.
    policy=/usr/sbin/policy-rc.d
    if [[ ! -e $policy ]]; then
        trap '"${root[@]}" rm -f "$policy"' EXIT
        printf '#!/bin/sh\nexit 101\n' | "${root[@]}" tee "$policy" >/dev/null
        "${root[@]}" chmod 755 "$policy"
    fi
    "${root[@]}" apt-get update -qq
    "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}" >&2
fi

if ! command -v cargo >/dev/null; then
    say "cargo is missing: install Rust (the version in Cargo.toml or newer) with rustup first"
    exit 1
fi

[[ $want == test ]] || exit 0
# cargo subcommands, built from the registry at pinned versions where missing
tool() { # command, crate, version
    if ! cargo "$1" --version >/dev/null 2>&1; then
        say "building $2 $3 (once per machine)"
        cargo install --quiet --locked --version "$3" "$2"
    fi
}
tool nextest cargo-nextest 0.9.143
tool deny cargo-deny 0.20.2
tool fuzz cargo-fuzz 0.13.2
