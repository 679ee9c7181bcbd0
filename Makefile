# The ways to build, run and test Forebay. `make` alone lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
CARGO ?= cargo
ARGS ?=
STEP := scripts/step.sh
# Where `make soak` keeps what it has done, so that it can go on after a break.
SOAK_DIR ?= target/soak

.PHONY: help setup build demo test soak bench-mount

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16
	@echo "Arguments go in ARGS, as in: make demo ARGS='--size 256MiB'"

setup: ## Install what is missing: FUSE and the programs that the tests run on the mount
	@scripts/setup.sh

build: ## Build the forebay command (target/release/forebay)
	@$(STEP) build $(CARGO) build --release -p forebay-cli

demo: setup build ## One shared file on four nodes: write, kill, restart, read, verify, compare
	@$${CARGO_TARGET_DIR:-target}/release/forebay demo $(ARGS)

test: setup ## Format, lints, all tests, documentation
	@$(STEP) "format" $(CARGO) fmt --all --check
	@$(STEP) "lints" $(CARGO) clippy --workspace --all-targets -- -D warnings
	@$(STEP) "tests" $(CARGO) test --workspace $(ARGS)
	@$(STEP) "documentation" env RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps

soak: setup ## The full counts of the randomised tests; goes on where it stopped (SOAK_DIR)
	@mkdir -p $(SOAK_DIR)
	@$(STEP) "soak" env SOAK=1 SOAK_DIR="$$(cd $(SOAK_DIR) && pwd)" $(CARGO) test --release --workspace $(ARGS)

bench-mount: setup ## The mount against a pass-through file system and the plain disk
	@$(STEP) "build" $(CARGO) build --release -p forebay-cli -p forebay-bench
	@$${CARGO_TARGET_DIR:-target}/release/forebay-bench mount $(ARGS)
