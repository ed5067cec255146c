# The two commands of a newcomer are `make demo` and `make test`; both set up what they need. `make` lists all.

PYTHON ?= python3
CARGO ?= cargo

# What only tests and benchmarks may do.
TESTS_MAY = -A clippy::unwrap_used -A clippy::expect_used -A clippy::print_stdout -A clippy::print_stderr

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help deps build demo test validators lint closed-loop bench look docs install clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

deps: ## make HiGHS and libclang available to cargo (see scripts/deps)
	@command -v $(CARGO) >/dev/null || { printf 'error: no %s found\n\nhint: install Rust, see https://rustup.rs\n' '$(CARGO)' >&2; exit 1; }
	@command -v $(PYTHON) >/dev/null || { printf 'error: no %s found\n\nhint: install Python 3.8 or later: apt-get install python3 python3-pip\n' '$(PYTHON)' >&2; exit 1; }
	@$(PYTHON) scripts/deps

build: deps ## compile the release binary, target/release/meshwright
	$(CARGO) build --release

# The binary of the demo leaves out Parquet, half a minute of a first build; `make build` has it.
demo: deps ## plan Llama-3.1-70B on 8 nodes of dgx-h100 and write a Megatron-LM launch folder
	$(CARGO) build --release --no-default-features
	target/release/meshwright plan --model llama-3.1-70b --cluster dgx-h100 --gpus 64 --seq-len 8192 --global-batch 128 --out plan.json
	target/release/meshwright export plan.json --to megatron --out launch --force

test: deps ## run all tests, those of the documentation included
	$(CARGO) test --workspace

validators: deps ## record anew what the launchers' own parsers say of exported configurations (6 GB of packages)
	CARGO=$(CARGO) $(PYTHON) scripts/validators

lint: deps ## check formatting, clippy and the documentation; warnings are errors
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --lib --bins -- -D warnings
	$(CARGO) clippy --workspace --tests --benches -- -D warnings $(TESTS_MAY)
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --workspace --no-deps

# Two processes on the CPU, or all GPUs with `scripts/closed_loop --processes 8`. Downloads torch once (PyPI, 3 GB on Linux).
closed-loop: build ## probe this machine, plan a small GPT for it, run the plans, compare
	$(PYTHON) scripts/closed_loop

bench: deps ## run the benchmarks
	$(CARGO) bench --workspace

look: build ## open a page of every kind in headless Chromium; pictures in target/look
	@$(PYTHON) scripts/look target/release/meshwright

docs: deps ## write the documentation to target/doc
	$(CARGO) doc --workspace --no-deps

# HiGHS is compiled (about ten minutes on two cores) and linked into the binary, which then needs nothing of this folder
# or of the cache. A plain `cargo install --path .` after `make deps` takes a minute; its binary loads libhighs.so from
# the cache folder, or from where HiGHS is installed.
install: deps ## install a self-contained binary with cargo; compiles HiGHS
	HIGHS_NO_PKG_CONFIG=1 CMAKE="$$($(PYTHON) scripts/deps cmake)" \
		$(CARGO) install --path . --locked --target-dir target/install

clean: ## remove what was built here; downloads stay in the cache folder
	$(CARGO) clean
	rm -rf plan.json launch
