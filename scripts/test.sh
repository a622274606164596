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
    RUSTFLAGS="$cpu --cfg loom" cargo test --quiet --release --package linerate-tables --lib --target-dir target/loom loom
}

fuzz() {
    # AddressSanitizer needs a nightly compiler; without one the targets run uninstrumented by it, still coverage-guided.
    local toolchain=() sanitizer=none
    if cargo +nightly --version >/dev/null 2>&1; then toolchain=(+nightly) sanitizer=address; fi
    local target
    for target in $(cargo fuzz list); do
        echo "fuzz: $target for ${FUZZ_SECONDS:-60} s"
        mkdir -p "fuzz/corpus/$target"
        cargo "${toolchain[@]}" fuzz run --sanitizer "$sanitizer" "$target" "fuzz/corpus/$target" "fuzz/seeds/$target" -- \
            -max_total_time="${FUZZ_SECONDS:-60}" -rss_limit_mb=4096 -timeout=10 -print_final_stats=1 2>&1 |
            tail -n 12
    done
}

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
