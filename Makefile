# memlens: what to type.
#
#   make demo     memlens on two programs, from nothing: build, run, tables
#   make test     everything that must hold, in a bounded form
#   make bench    memlens beside native, cachegrind and callgrind (BENCH='--quick' is faster)
#   make lint     formatting and clippy
#   make doc      the crates' documentation, with warnings as errors
#   make setup    the system packages all of these need
CARGO ?= cargo
MEMLENS = target/release/memlens
EXAMPLES = target/examples
BENCH ?=

.DEFAULT_GOAL := build

build:
	@scripts/setup.sh build
	$(CARGO) build --release --workspace

setup:
	@scripts/setup.sh build demo test bench

examples:
	$(MAKE) -s -C examples/bfs
	$(CARGO) build --release --manifest-path examples/sqlite/Cargo.toml --target-dir $(EXAMPLES)/sqlite

demo: build examples
	@mkdir -p $(EXAMPLES)
	@echo; echo '== Breadth-first search over an R-MAT graph (examples/bfs) =='
	$(MEMLENS) run --out $(EXAMPLES)/bfs.memlens -- examples/bfs/bfs 16
	@echo; echo '== SQLite building and querying a table of 100,000 rows (examples/sqlite) =='
	$(MEMLENS) run --out $(EXAMPLES)/sqlite.memlens -- $(EXAMPLES)/sqlite/release/sqlite-example 100000
	@echo; echo 'Look closer: $(MEMLENS) report $(EXAMPLES)/bfs.memlens --by line'

# In the order of cost: the crates' own tests, programs whose counts are known by hand, programs that must
# not notice.
test:
	@scripts/setup.sh build test
	$(CARGO) build --release --workspace
	$(CARGO) test --workspace
	$(MAKE) -s -C examples/bfs check
	$(MAKE) -s -C examples/kernels check
	tests/programs.py
	tests/cachegrind.py
	tests/transparency.py --short --attribution

bench:
	@scripts/setup.sh build bench
	$(CARGO) build --release --workspace
	bench/run.py $(BENCH)

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings

doc:
	RUSTDOCFLAGS=-Dwarnings $(CARGO) doc --workspace --no-deps

.PHONY: build setup examples demo test bench lint doc
