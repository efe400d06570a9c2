# Everything starts here: Python 3.11 or newer and make are all it needs. `make help` lists the targets.

VENV := .venv
BIN := $(VENV)/bin
# The first interpreter that is new enough; `make PYTHON=/path/to/python` overrides the search.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3.14 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
UP_FLAGS ?=
PYTEST_FLAGS ?=
BENCH_FLAGS ?=
# Folders of tests that `make check` leaves out: they start servers, databases and processes, or rehearse for long.
NOT_QUICK := aws benchmarks cli cluster contracts goldens notify sim slow store wire
PYTEST := $(BIN)/pytest -q -n auto --dist worksteal
# Each worker has a control plane of its own: half a gigabyte. A file stays on one of them.
CLUSTER_PYTEST := $(BIN)/pytest -q -n $(or $(WORKERS),2) --dist loadfile
BENCHMARKS := startup decision rehearsal purchase planner_market last_day calendars seeds

# Byte code is kept even where an image sets this: without it every worker and every process that a test starts
# compiles the whole package again.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help up check test lint format bench bench-decisions bench-karpenter chaos-money chaos-money-wire chaos-leader two-months vopr goldens conformance slow \
	controlplane test-cluster slow-cluster peers-eksctl clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

up: $(VENV)/.runtime ## Watch the engine run a simulated day (UP_FLAGS="--for 60s")
	@$(BIN)/tidemill up $(UP_FLAGS)

check: lint ## Before a commit, about a minute: lint, types, and the tests of the pure core
	$(PYTEST) $(NOT_QUICK:%=--ignore=tests/%) $(PYTEST_FLAGS)

test: lint ## Before a push, some minutes: lint, types, and every test that is not slow
	$(PYTEST) $(PYTEST_FLAGS)

lint: $(VENV)/.dev ## Ruff, mypy and import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.dev ## Format the code
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

bench: $(VENV)/.dev ## Print the benchmarks (ratios, not timed tests)
	@$(BIN)/tidemill bench pack --reference --pods 1000
	@$(BIN)/tidemill bench pack
	@for b in $(BENCHMARKS); do echo "== $$b"; $(BIN)/python -m benchmarks.$$b || exit 1; done

bench-decisions: $(VENV)/.runtime ## Situations whose best outcome is known, played by the engine, a script and Karpenter's rule
	@$(BIN)/python -m benchmarks.decisions $(BENCH_FLAGS)

# Apart from `bench`: it needs Go, builds for minutes the first time and solves for minutes every time.
bench-karpenter: $(VENV)/.runtime ## Karpenter's own scheduling benchmark beside ours (BENCH_FLAGS="--pods 1000")
	@$(BIN)/python -m benchmarks.karpenter $(BENCH_FLAGS)

chaos-money: $(VENV)/.runtime ## The engine buys while everything fails (RUNS=10000): nothing double, unasked, over budget, lost
	@$(BIN)/python -m benchmarks.chaos_money --runs $(or $(RUNS),1000)

chaos-money-wire: $(VENV)/.dev ## The same with AWS's protocol in between (RUNS=500)
	@$(BIN)/python -m benchmarks.chaos_wire --runs $(or $(RUNS),500)

chaos-leader: $(VENV)/.dev ## Two controllers on a real control plane, the leader killed RUNS=30 times: nothing double, nothing lost
	@$(BIN)/python -m controlplane build
	@$(BIN)/python -m benchmarks.chaos_leader --runs $(or $(RUNS),30)

two-months: $(VENV)/.runtime ## Two months of blocks, hand-overs and trouble under SEEDS=1000 seeds
	@$(BIN)/python -m benchmarks.two_months --seeds $(or $(SEEDS),1000)

vopr: $(VENV)/.runtime ## Whole platforms that nobody wrote, SEEDS=200 of them, a month each; those that fail are shrunk
	@$(BIN)/python -m benchmarks.vopr --seeds $(or $(SEEDS),200) $(VOPR_FLAGS)

goldens: $(VENV)/.dev ## Freeze what the engine, the packer and the planner answer (GOLDENS="demo pools")
	@$(BIN)/python -m tests.goldens.freeze $(GOLDENS)

conformance: $(VENV)/.dev ## Which requirement is proved by which test
	@$(PYTEST) --conformance $(PYTEST_FLAGS)

slow: $(VENV)/.dev ## The tests that take minutes: many seeds, long rehearsals, the stock AWS CLI
	$(PYTEST) -m "slow and not cluster" $(PYTEST_FLAGS)

controlplane: $(VENV)/.dev ## Build etcd, kube-apiserver, kube-scheduler, ... into the user's cache: needs Go, 10 minutes, once
	@$(BIN)/python -m controlplane build

# Without Go the tests are skipped with one line, unless nothing may be skipped.
# Everything is built first: a build beside tests that live in real time would make them late.
test-cluster: $(VENV)/.dev ## The tests on a real control plane
	@$(BIN)/python -m controlplane build kubernetes karpenter nth || test "$$TIDEMILL_REQUIRE_ALL" != 1
	$(CLUSTER_PYTEST) -m "cluster and not slow" tests/cluster $(PYTEST_FLAGS)

slow-cluster: $(VENV)/.dev ## ... and those that take minutes: many seeds of the scheduler oracle
	@$(BIN)/python -m controlplane build || test "$$TIDEMILL_REQUIRE_ALL" != 1
	$(CLUSTER_PYTEST) -m "cluster and slow" tests/cluster $(PYTEST_FLAGS)

# Apart from the others: eksctl takes ten minutes of CPU to build, and CI has no room for them.
peers-eksctl: $(VENV)/.dev ## The stock eksctl on the simulated AWS; builds it first, for ten minutes, once
	@$(BIN)/python -m controlplane build kubernetes eksctl
	TIDEMILL_EKSCTL=1 $(BIN)/pytest -q -m cluster tests/cluster/test_peer_eksctl.py $(PYTEST_FLAGS)

clean: ## Remove the virtual environment and every cache
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis dist build
	find benchmarks conformance controlplane deploy src tests -name __pycache__ -prune -exec rm -rf {} +

# Two stamps: `up` waits for the runtime alone, the checks add their tools.
$(VENV)/.runtime: pyproject.toml
	@test -n "$(PYTHON)" || { echo "error: no Python 3.11 or newer found; install one, or: make PYTHON=/path/to/python" >&2; exit 1; }
	@test -x $(BIN)/python || { echo "setting up $(VENV) with $(PYTHON) ..." >&2; $(PYTHON) -m venv $(VENV); }
	@$(PIP) install -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime
	@echo "adding the development tools ..." >&2
	@$(PIP) install -e '.[dev]'
	@touch $@
