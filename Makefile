# `make demo` and `make test` do everything from a bare checkout; Rust, gcc, make and apt are all that must be there.
.DEFAULT_GOAL := help
.PHONY: help setup build demo check test lint unit loom fuzz system bench clean

LINERATE := target/release/linerate
FUZZ_SECONDS ?= 60

help: ## this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | expand -t 10

setup: ## install missing Debian packages
	@scripts/setup.sh

build: setup ## release build
	@cargo build --release --bin linerate

demo: build ## router and tester in one process, no NIC, no root (under a minute)
	@$(LINERATE) demo $(ARGS)

bench: build ## the figures of the README: FIB and forwarding (ARGS="--routes FILE --routes6 FILE" for real tables)
	@$(LINERATE) bench fib $(ARGS)
	@$(LINERATE) bench forward $(ARGS)

test: ## everything that CI runs
	@scripts/test.sh

lint: ## formatting, clippy, layers, licences
	@scripts/test.sh lint

unit: ## unit and integration tests
	@scripts/test.sh unit

loom: ## model checking of the lock-free parts
	@scripts/test.sh loom

fuzz: ## each fuzz target for FUZZ_SECONDS (60)
	@FUZZ_SECONDS=$(FUZZ_SECONDS) scripts/test.sh fuzz

system: ## network namespaces, foreign peers (root)
	@scripts/test.sh system

clean: ## remove build output
	@cargo clean
