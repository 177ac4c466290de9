# memlens: what to type.
#
#   make demo     memlens on two programs, from nothing: build, run, tables
#   make test     everything that must hold, in a bounded form
#   make bench    memlens beside native, cachegrind and callgrind; sample mode beside native, perf, heaptrack and
#                 dhat; what watching large blocks costs; bursts against exact mode (BENCH='--quick' is faster)
#   make test-aarch64   memlens for AArch64, in an emulated machine (Debian's cross compiler and QEMU; not part of `make test`)
#   make test-numa      burst mode on a machine with two memory nodes, an emulated one (QEMU; not part of `make test`)
#   make lint     formatting and clippy
#   make doc      the crates' documentation, with warnings as errors
#   make setup    the system packages all of these need
#
# Everything is compiled in one profile, release: Parquet and DynamoRIO take minutes each time. The
# client that runs inside the target is no part of the workspace builds below, because it would build
# DynamoRIO once more; crates/memlens-exact/build.rs builds it, in $(CLIENT_TARGET), with the DynamoRIO that
# lint uses too.
CARGO ?= cargo
PYTHON ?= python3
# As cargo has it: the environment, else the folder here. As an absolute path, for the tests' scripts.
TARGET := $(abspath $(or $(CARGO_TARGET_DIR),target))
CLIENT_TARGET := $(or $(MEMLENS_CLIENT_TARGET_DIR),$(TARGET)/memlens-client)
MEMLENS = $(TARGET)/release/memlens
EXAMPLES = $(TARGET)/examples
WORKSPACE = --workspace --exclude memlens-exact-client
# Crates where an overflow would be a wrong count rather than a crash: tested with checks, optimised as ever. memlens itself, which
# the other tests run, has them as they are shipped.
CHECKED = memlens-code memlens-events memlens-import memlens-objects memlens-sim memlens-types
CHECKS = $(foreach crate,$(CHECKED),$(foreach check,overflow-checks debug-assertions, \
	--config profile.release.package.$(crate).$(check)=true))
# The others.
PLAIN = $(WORKSPACE) $(addprefix --exclude ,$(CHECKED))
BENCH ?=

.DEFAULT_GOAL := build

# The client with DynamoRIO is what memlens-exact's build script would build itself, late and alone: beside the rest it
# takes the time that Parquet leaves one processor idle. If it fails here, it fails there with a message.
ifeq ($(shell uname -m),x86_64)
beside_client = @$(CARGO) build --quiet --release -p memlens-exact-client --target-dir $(CLIENT_TARGET) 2>/dev/null & \
	echo '$(1)'; $(1); status=$$?; wait; exit $$status
else
# Elsewhere there is no exact mode.
beside_client = $(1)
endif

build:
	@scripts/setup.sh build
	$(call beside_client,$(CARGO) build --release -p memlens)

# What `build` builds, the tests and the examples. Dependencies have more features here: `build` and this one after the
# other would compile them, and all that uses them, twice.
test-build:
	@scripts/setup.sh build test
	$(call beside_client,$(CARGO) test --release $(PLAIN) --no-run)

setup:
	@scripts/setup.sh build demo test bench

examples:
	$(MAKE) -s -C examples/bfs
	$(CARGO) build --release --manifest-path examples/sqlite/Cargo.toml --target-dir $(EXAMPLES)/sqlite

# Exact mode is x86-64's.
ifneq ($(shell uname -m),x86_64)
demo: build examples
	@mkdir -p $(EXAMPLES)
	@echo; echo '== Breadth-first search over an R-MAT graph (examples/bfs), estimated from bursts =='
	$(MEMLENS) run --force --out $(EXAMPLES)/bfs.memlens -- examples/bfs/bfs 20 16 1 20
	@echo; echo '== SQLite building and querying a table of 300,000 rows (examples/sqlite), estimated from bursts =='
	$(MEMLENS) run --force --out $(EXAMPLES)/sqlite.memlens -- $(EXAMPLES)/sqlite/release/sqlite-example 300000
	@$(MEMLENS) report $(EXAMPLES)/sqlite.memlens --html $(EXAMPLES)/sqlite.html --force
	@echo; echo 'Look around: $(MEMLENS) view $(EXAMPLES)/sqlite.memlens'
	@echo 'In a browser: $(EXAMPLES)/sqlite.html'
else
demo: build examples
	@mkdir -p $(EXAMPLES)
	@echo; echo '== Breadth-first search over an R-MAT graph (examples/bfs) =='
	$(MEMLENS) run --mode exact --force --out $(EXAMPLES)/bfs.memlens -- examples/bfs/bfs 16 16 1 20
	@echo; echo '== SQLite building and querying a table of 100,000 rows (examples/sqlite) =='
	$(MEMLENS) run --mode exact --force --out $(EXAMPLES)/sqlite.memlens -- $(EXAMPLES)/sqlite/release/sqlite-example 100000
	@echo; echo '== The same with three times the rows at nearly native speed, estimated from bursts =='
	$(MEMLENS) run --mode burst --force --out $(EXAMPLES)/sqlite-bursts.memlens -- $(EXAMPLES)/sqlite/release/sqlite-example 300000
	@$(MEMLENS) report $(EXAMPLES)/sqlite.memlens --html $(EXAMPLES)/sqlite.html --force
	@echo; echo 'Look around: $(MEMLENS) view $(EXAMPLES)/sqlite.memlens'
	@echo 'In a browser: $(EXAMPLES)/sqlite.html'
endif

# Sampled shares are held to wide bounds here, because the machine may be busy with other things, which moves the costs
# themselves: bench/accuracy.py and bench/unbiased.py without them are for a quiet one.
#
# In the order of cost: the crates' own tests, programs whose counts are known by hand, the counts of
# another tool, programs that must not notice.
#
# With assumed latencies, so that what must hold is the same everywhere.
test: export MEMLENS_CALIBRATION = none
test: test-build
	$(CARGO) test --release $(PLAIN) --no-fail-fast
	$(CARGO) test --release $(addprefix -p ,$(CHECKED)) $(CHECKS) --no-fail-fast
	$(MAKE) -s -C examples/bfs check
	$(MAKE) -s -C examples/kernels check
	$(PYTHON) tests/programs.py --memlens $(MEMLENS)
	$(MAKE) --no-print-directory --jobs=2 --output-sync $(BESIDE)
	$(PYTHON) bench/accuracy.py --memlens $(MEMLENS) --check
	$(PYTHON) bench/bursts.py --memlens $(MEMLENS) --check
	$(PYTHON) bench/unbiased.py --memlens $(MEMLENS) --runs 12 --block 1 --least 0.3
	$(PYTHON) bench/advice.py --memlens $(MEMLENS) --check
	@if command -v valgrind >/dev/null; then \
		set -ex; \
		$(PYTHON) tests/cachegrind.py --memlens $(MEMLENS); \
		$(PYTHON) tests/live_cachegrind.py --memlens $(MEMLENS); \
	else echo 'left out for want of valgrind: tests/cachegrind.py, tests/live_cachegrind.py'; fi
	$(PYTHON) tests/transparency.py --memlens $(MEMLENS) --short --attribution
	$(PYTHON) tests/transparency.py --memlens $(MEMLENS) --short --mode sample
	$(PYTHON) tests/transparency.py --memlens $(MEMLENS) --short --mode burst
	$(PYTHON) tests/torture.py --hammer $(TARGET)/release/examples/hammer --short
	$(PYTHON) tests/attach.py --memlens $(MEMLENS) --short
	$(MAKE) doc

# Tests that keep one processor busy each, and do not mind what goes on beside them: two at a time. Also one alone, with what is built.
BESIDE = test-apply test-bus test-page test-random_code test-static test-vector_code test-view
$(BESIDE): export MEMLENS_CALIBRATION = none

test-apply test-bus test-random_code test-vector_code test-view: test-%:
	$(PYTHON) tests/$*.py --memlens $(MEMLENS)

test-page:
	@if command -v node >/dev/null; then \
		set -ex; $(PYTHON) tests/page.py --memlens $(MEMLENS); \
	else echo 'left out for want of node: tests/page.py'; fi

test-static:
	$(PYTHON) tests/static.py --memlens $(MEMLENS) --evaluate $(TARGET)/release/examples/evaluate

# memlens for AArch64, tried in an emulated machine.
AARCH64 = aarch64-unknown-linux-gnu
test-aarch64: export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER = aarch64-linux-gnu-gcc
test-aarch64: export CC_aarch64_unknown_linux_gnu = aarch64-linux-gnu-gcc
test-aarch64: build
	@scripts/setup.sh build aarch64
	@rustup target list --installed 2>/dev/null | grep -qx $(AARCH64) || rustup target add $(AARCH64)
	$(CARGO) build --release --target $(AARCH64) -p memlens
	$(PYTHON) tests/aarch64.py --memlens $(TARGET)/$(AARCH64)/release/memlens --reader $(MEMLENS) --folder $(TARGET)/aarch64-machine

# Memory nodes, in an emulated machine that has two.
test-numa: build
	@scripts/setup.sh build numa
	$(PYTHON) tests/numa.py --memlens $(MEMLENS) --folder $(TARGET)/numa-machine

bench: build
	@scripts/setup.sh build bench
	$(PYTHON) bench/run.py --memlens $(MEMLENS) $(BENCH)
	$(PYTHON) bench/sample.py --memlens $(MEMLENS) $(BENCH)
	$(PYTHON) bench/sample.py --memlens $(MEMLENS) --threads --tools sample,burst $(BENCH)
	$(PYTHON) bench/bursts.py --memlens $(MEMLENS)
	$(PYTHON) bench/advice.py --memlens $(MEMLENS)
	$(PYTHON) bench/allocations.py --memlens $(MEMLENS) $(BENCH)

lint:
	@scripts/setup.sh build
	$(CARGO) fmt --all --check
	$(CARGO) clippy --release $(WORKSPACE) --all-targets -- -D warnings
	$(CARGO) clippy --release -p memlens-exact-client --target-dir $(CLIENT_TARGET) -- -D warnings
	CARGO_PROFILE_RELEASE_PANIC=abort $(CARGO) clippy --release -p memlens-agent -p memlens-placement-client --target-dir $(CLIENT_TARGET) -- -D warnings

doc:
	@scripts/setup.sh build
	RUSTDOCFLAGS=-Dwarnings $(CARGO) doc --release $(WORKSPACE) --no-deps

clean:
	$(CARGO) clean
	$(MAKE) -s -C examples/bfs clean
	$(MAKE) -s -C examples/kernels clean

.PHONY: build test-build setup examples demo test test-aarch64 test-numa $(BESIDE) bench lint doc clean
