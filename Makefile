# The ways to build, run and test Forebay. `make` alone lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
CARGO ?= cargo
ARGS ?=
STEP := scripts/step.sh
# Where `make install-c` installs, and more words for pytest.
PREFIX ?= /usr/local
PYTEST ?=
# Where `make soak` keeps what it has done, so that it can go on after a break.
SOAK_DIR ?= target/soak

# The service over MPI is built and tested where there is an MPI. Looked for when a step runs, for `setup` may install it.
# OpenMPI by its own name where it has one: the plain `mpicc` may be another's.
MPI = $(shell command -v mpicc.openmpi || command -v mpicc)
MPICH = $(shell command -v mpicc.mpich)
WITH_MPI = $(if $(MPI),--features forebay-cli/mpi)
# All that has a feature. What cargo builds for `make test` is chosen so that dependencies have the same features each time, and are
# compiled once: over the whole workspace, and with bindgen, by MPI or by the peers.
ALL = --workspace --features forebay-bench/png$(if $(MPI),$(comma)forebay-cli/mpi$(comma)forebay-bench/mpi)$(if $(PEERS),$(comma)forebay-bench/peers)
# As most people build it; with bindgen all the same.
WITHOUT_MPI = --workspace $(if $(PEERS),--features forebay-bench/peers)
# Servers for another MPI are another program, in target/mpich. What they are built of is beside what OpenMPI's are built of, and of it
# all that does not know of MPI is taken: a setting of `mpi-sys` alone, whichever, tells cargo what depends on it apart.
WITH_MPICH = env MPICC=$(MPICH) CARGO_BUILD_BUILD_DIR="$${CARGO_TARGET_DIR:-target}" CARGO_TARGET_DIR="$${CARGO_TARGET_DIR:-target}/mpich"
MPICH_LIST = $${CARGO_TARGET_DIR:-target}/mpich/programs
MPICH_APART = --config profile.dev.package.mpi-sys.codegen-units=15
# `python` and `trace` are named only for features of dependencies that the whole workspace has; none of their tests is chosen.
MPICH_CHOICE = -p forebay-mpi -p forebay-cli -p forebay-python -p forebay-trace --features forebay-cli/mpi --test it
# By module: `mpi::` is the transport's, and the end of the name of each module that needs nothing but an `mpirun`.
MPICH_TESTS = mpi:: mpi_programs:: run_mpi_killed:: slurm:: --skip trace_record_mpi::
FEATURES =
# LevelDB and RocksDB are only needed to be measured against; `make bench-index` installs them.
# No `#` in the call: GNU make 4.3 hands the backslash before it on.
PEERS = $(shell cc -E -x c -include leveldb/c.h -include rocksdb/c.h /dev/null >/dev/null 2>&1 && echo yes)
comma := ,

.PHONY: help setup build demo test test-mpich test-wheel test-lints test-docs test-python test-torch python c install-c fresh soak bench-mount bench-stage bench-ring bench-index bench-pattern bench-prefetch bench-checkpoint bench-dedup bench-fields bench-clients bench-dcp figures

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16
	@echo "Arguments go in ARGS, as in: make demo ARGS='--size 256MiB'"

setup: ## Install what is missing: FUSE, MPI, Slurm, and the programs that the tests run
	@scripts/setup.sh

build: ## Build the forebay command (target/release/forebay)
	@$(STEP) build env $(if $(FEATURES),MPICC=$(MPI)) $(CARGO) build --release -p forebay-cli $(FEATURES)

demo: FEATURES = $(WITH_MPI)
demo: setup build ## One shared file on four nodes: write, kill, restart, read, verify, compare; then over MPI
	@$${CARGO_TARGET_DIR:-target}/release/forebay demo $(ARGS)

test: setup ## Format, lints, all tests, documentation
	@$(if $(and $(MPI),$(MPICH)),,[ -z "$$FOREBAY_REQUIRE_MPI" ] || { echo "OpenMPI or MPICH is missing; the tests over MPI cannot run here" >&2; exit 1; })
	@$(STEP) "format" $(CARGO) fmt --all --check
	@$(STEP) "lints" env $(if $(MPI),MPICC=$(MPI)) $(CARGO) clippy $(ALL) --all-targets -- -D warnings
	@$(STEP) "tests" env $(if $(MPI),MPICC=$(MPI)) scripts/tests.sh $(ALL) $(ARGS)
	@$(if $(MPICH),$(STEP) "build with MPICH" $(WITH_MPICH) scripts/tests.sh --list $(MPICH_LIST) $(MPICH_APART) $(MPICH_CHOICE))
	@$(MAKE) --no-print-directory -j4 --output-sync=line test-mpich test-wheel test-lints test-docs

# Beside each other: the first waits most of the time. The last two come after the wheel, which would wait for their builds.
test-mpich:
	@$(if $(MPICH),$(STEP) "tests with MPICH" $(WITH_MPICH) scripts/tests.sh --from $(MPICH_LIST) -- $(MPICH_TESTS))

test-wheel:
	@$(STEP) "tests of Python" scripts/python.sh test

test-lints test-docs: test-wheel

test-lints:
	@$(STEP) "lints without MPI" $(CARGO) clippy --quiet $(WITHOUT_MPI) --all-targets -- -D warnings

test-docs:
	@$(STEP) "documentation" env RUSTDOCFLAGS="-D warnings" $(if $(MPI),MPICC=$(MPI)) $(CARGO) doc --quiet $(ALL) --no-deps

test-python: ## Tests of the Python package, with fsspec, h5py, zarr, dask, ...; part of `make test`; skipped without a Python
	@[ -n "$$FOREBAY" ] || $(STEP) "command for the tests of Python" $(CARGO) build -p forebay-cli
	@$(STEP) "tests of Python" scripts/python.sh test $(PYTEST)

test-torch: ## Checkpoints of PyTorch: sets up torch (5 GB) in target/python/torch once, saves and loads below torchrun
	@[ -n "$$FOREBAY" ] || $(STEP) "command for the tests of PyTorch" $(CARGO) build -p forebay-cli
	@$(STEP) "tests of PyTorch" scripts/python.sh torch $(PYTEST)

python: ## Build the Python package, and install it into target/python/venv
	@$(STEP) "Python package" scripts/python.sh install

c: ## Build libforebay for C, C++ and Fortran (target/release/libforebay.so, libforebay.a)
	@$(STEP) "libforebay" $(CARGO) build --release -p forebay-capi
	@ln -sfn libforebay.so $${CARGO_TARGET_DIR:-target}/release/libforebay.so.0

install-c: c ## Install libforebay, its header and forebay.pc below PREFIX (and DESTDIR)
	@scripts/install-c.sh "$(abspath $(PREFIX))" "$${CARGO_TARGET_DIR:-target}/release"

fresh: ## `make demo` and `make test` in a new Debian 12 root, from a clone of the last commit (root, 15 GB, some 40 minutes)
	@scripts/setup.sh fresh
	@scripts/fresh.sh $(ARGS)

soak: setup ## The full counts of the randomised tests; goes on where it stopped (SOAK_DIR)
	@mkdir -p $(SOAK_DIR)
	@$(STEP) "soak" env SOAK=1 SOAK_DIR="$$(cd $(SOAK_DIR) && pwd)" $(if $(MPI),MPICC=$(MPI)) $(CARGO) test --release --workspace $(WITH_MPI) $(ARGS)

bench-mount: setup ## The mount against a pass-through file system and the plain disk
	@$(STEP) "build" $(CARGO) build --release -p forebay-cli -p forebay-bench
	@$${CARGO_TARGET_DIR:-target}/release/forebay-bench mount $(ARGS)

bench-stage: setup ## Staging out against cp of the same data from the same disk
	@$(STEP) "build" env $(if $(MPI),MPICC=$(MPI)) $(CARGO) build --release $(WITH_MPI) -p forebay-cli -p forebay-bench
	@$${CARGO_TARGET_DIR:-target}/release/forebay-bench stage $(ARGS)

# With MPI processes too where MPI can be built against.
bench-ring: setup ## Many servers that ask one: log-ring, direct, one by one, the best tree; measured and simulated
	@$(STEP) "build" env $(if $(MPI),MPICC=$(MPI)) $(CARGO) build --release -p forebay-bench $(if $(MPI),--features forebay-bench/mpi)
	@$${CARGO_TARGET_DIR:-target}/release/forebay-bench ring $(ARGS)

bench-index: ## The extent index against LevelDB and RocksDB: puts, and gets cold and warm
	@scripts/setup.sh peers
	@$(STEP) "build" $(CARGO) build --release -p forebay-bench --features peers
	@$${CARGO_TARGET_DIR:-target}/release/forebay-bench index $(ARGS)

# The full benchmarks take long, so the figures are of what they left in target/bench.
figures: ## The paper's figures, of results in target/bench, or of a quick run if there are none
	@scripts/setup.sh peers
	@$(STEP) "build" env $(if $(MPI),MPICC=$(MPI)) $(CARGO) build --release -p forebay-bench --features png,peers$(if $(MPI),$(comma)mpi)
	@scripts/figures.sh "$${CARGO_TARGET_DIR:-target}/release/forebay-bench" $(ARGS)

bench-pattern: setup ## Patterns against the published algorithm, raw entries and zstd: bytes, discovery, lookup
	@$(STEP) "build" $(CARGO) build --release -p forebay-bench
	@$${CARGO_TARGET_DIR:-target}/release/forebay-bench pattern $(ARGS)

bench-prefetch: setup ## Reads fetched ahead, replayed: patterns, none, readahead, Markov chains, perfect
	@$(STEP) "build" $(CARGO) build --release -p forebay-bench
	@$${CARGO_TARGET_DIR:-target}/release/forebay-bench prefetch $(ARGS)

bench-checkpoint: setup ## A checkpoint of many processes in one file, with patterns and without: write, read, index on disk and in memory
	@$(STEP) "build" $(CARGO) build --release -p forebay-bench
	@$${CARGO_TARGET_DIR:-target}/release/forebay-bench checkpoint $(ARGS)

bench-dedup: ## Chains of checkpoints, settled, against borg and restic: bytes stored, speed, reads
	@scripts/setup.sh dedup
	@$(STEP) "build" $(CARGO) build --release -p forebay-cli -p forebay-bench
	@$${CARGO_TARGET_DIR:-target}/release/forebay-bench dedup $(ARGS)

bench-fields: setup ## Codecs of floating-point arrays: sizes, speeds, and the time of one value
	@$(STEP) "build" $(CARGO) build --release -p forebay-cli -p forebay-bench
	@$${CARGO_TARGET_DIR:-target}/release/forebay-bench fields $(ARGS)

# Words of a subject that is a program: NAME=PROGRAM ARGUMENTS.
BENCH_CLIENTS = crates/bench/clients
bench-clients: setup c ## The ways to files: disk, mount, link, and over the link from C, Python and fsspec
	@$(STEP) "build" $(CARGO) build --release -p forebay-cli -p forebay-bench
	@$(STEP) "worker in C" cc -std=gnu17 -O2 -Icrates/capi/include $(BENCH_CLIENTS)/worker.c -L$${CARGO_TARGET_DIR:-target}/release -lforebay \
		-Wl,-rpath,"$$(cd $${CARGO_TARGET_DIR:-target}/release && pwd)" -o $${CARGO_TARGET_DIR:-target}/release/forebay-bench-c
	@$(STEP) "Python package" scripts/python.sh install
	@t=$${CARGO_TARGET_DIR:-target}; python="$$t/python/venv/bin/python $(BENCH_CLIENTS)/worker.py"; \
		"$$t/release/forebay-bench" clients --subject disk --subject mount --subject link --subject "c=$$t/release/forebay-bench-c" \
		--subject "python=$$python python" --subject "fsspec=$$python fsspec" $(ARGS)

bench-dcp: setup ## Checkpoints of PyTorch over the link, through the mount and on the disk: saved by 4 ranks, loaded by 1, 2, 3, 6
	@$(STEP) "build" $(CARGO) build --release -p forebay-cli -p forebay-bench
	@$(STEP) "PyTorch" scripts/python.sh bench
	@$${CARGO_TARGET_DIR:-target}/release/forebay-bench dcp --python $${CARGO_TARGET_DIR:-target}/python/torch/bin/python $(ARGS)
