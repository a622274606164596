#!/usr/bin/env bash
# The test suite, stage by stage; without arguments all of them. Fails at the first stage that fails.
set -euo pipefail
cd "$(dirname "$0")/.."
stages=("$@")
(( ${#stages[@]} )) || stages=(lint unit loom fuzz system)
scripts/setup.sh test

# What loom and the fuzzer need is passed by RUSTFLAGS, which replaces the target CPU of .cargo/config.toml.
cpu="-C target-cpu=x86-64-v3"

lint() {
    # These docs are for those who work on the program: private items are in them, and links to those are fine.
    cargo fmt --all --check
    cargo clippy --workspace --all-targets --quiet -- -D warnings
    # Private items are documented too, so public pages may link to them.
    RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" cargo doc --workspace --no-deps --quiet --document-private-items
    cargo xtask layers
    cargo deny --log-level error check bans licenses sources
}

unit() {
    cargo nextest run --workspace --no-fail-fast
    cargo test --workspace --doc --quiet
}

loom() {
    RUSTFLAGS="$cpu --cfg loom" cargo nextest run --release --package linerate-tables --lib --target-dir target/loom qsbr
}

fuzz() {
    # AddressSanitizer needs a nightly compiler; without one the targets run uninstrumented by it, still coverage-guided.
    export RUSTFLAGS=$cpu SANITIZER=none
    if cargo +nightly --version >/dev/null 2>&1; then export RUSTUP_TOOLCHAIN=nightly SANITIZER=address; fi
    echo "fuzz: ${FUZZ_SECONDS:-60} s for each target, sanitizer: $SANITIZER"
    cargo fuzz build --sanitizer "$SANITIZER"
    cargo fuzz list | xargs -P "$(nproc)" -I '{}' bash -c 'fuzz_one {}'
}

fuzz_one() {
    local target=$1 log=fuzz/target/$1.log
    mkdir -p "fuzz/corpus/$target"
    if cargo fuzz run --sanitizer "$SANITIZER" "$target" "fuzz/corpus/$target" "fuzz/seeds/$target" -- \
        -max_total_time="${FUZZ_SECONDS:-60}" -rss_limit_mb=4096 -timeout=10 -print_final_stats=1 >"$log" 2>&1
    then
        awk -v target="$target" '/^Done |number_of_executed_units|average_exec_per_sec|peak_rss_mb/ { print target ": " $0 }' "$log"
    else
        cat "$log"
        echo "fuzz: $target FAILED"
        return 1
    fi
}
export -f fuzz_one

system() {
    cargo build --release --quiet --bin linerate
    tests/system/run.sh
}

for stage in "${stages[@]}"; do
    printf '== %s\n' "$stage"
    started=$SECONDS
    "$stage"
    printf '== %s: ok in %d s\n' "$stage" $(( SECONDS - started ))
done
