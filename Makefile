# Headrace: every command a person or CI types. `make help` lists them.
# Each target makes its own virtual environment from the locked, hashed requirements.

SHELL := /bin/bash
.DEFAULT_GOAL := help
VENV ?= .venv
BIN := $(VENV)/bin
PURE := headrace_operator.estimators headrace_operator.snapshot \
	headrace_operator.optimizer headrace_operator.strategies headrace_operator.decision headrace_router.core headrace_router.http1

help: ## list the commands
	@awk -F':.*## ' '/^## /{print substr($$0, 4)} /^[a-z][a-z-]*:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

## Use
demo: $(VENV)/.demo ## real requests from a real trace, routed by a linear programme; no Kubernetes needed
	$(BIN)/headrace demo $(DEMO_ARGS)

demo-cluster: dev ## the same on a real Kubernetes of its own: the chart, router pods, an engine that shrinks, and why
	hack/cluster/demo.sh

## Test
check: lint types layers ## what runs in under two minutes: lint, types, layers, unit, property, golden tests
	$(BIN)/pytest -q -n auto --dist worksteal tests/unit tests/property tests/golden

test: need check ## what every change must pass: check, integration and end-to-end tests
	hack/dev/test.sh $(BIN)

e2e: need dev ## end-to-end tests alone, on a real Kubernetes
	$(BIN)/pytest -q tests/e2e $(E2E_ARGS)

test-long: dev ## what takes longer, in parts of under ten minutes; before an issue closes
	hack/dev/test_long.sh $(BIN)

need:
	hack/dev/need.sh bash curl git

lint: dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: dev
	$(BIN)/mypy
	$(BIN)/mypy -p bench.router -p compile.rehearsal
	MYPYPATH=hack/cluster $(BIN)/mypy --strict --no-namespace-packages --no-explicit-package-bases hack/cluster/*.py
	MYPYPATH=hack/cluster:hack/compile $(BIN)/mypy --strict --no-namespace-packages --no-explicit-package-bases hack/compile/*.py

layers: dev
	$(BIN)/lint-imports --no-logo

coverage: dev ## branch coverage of the pure packages
	$(BIN)/pytest -q tests/unit tests/property tests/golden $(foreach package,$(PURE),--cov=$(package)) \
		--cov-branch --cov-report=term-missing:skip-covered

## Measure
bench-lp: dev ## a tick of the linear programme, beside scipy and PuLP rebuilt each time, in one run
	$(BIN)/python hack/bench/bench_lp.py $(BENCH_ARGS)

bench-pick: dev ## one pick of the router's selection core in microseconds, beside plain rendezvous and round robin
	$(BIN)/python hack/bench/bench_pick.py $(BENCH_ARGS)

bench-http1: dev ## heads and chunks in microseconds, beside aiohttp's parser, h11 and plain code
	$(BIN)/python hack/bench/bench_http1.py $(BENCH_ARGS)

bench-router: dev ## the router beside Envoy, nginx, HAProxy, sglang-router, vllm-router, LiteLLM on one core each (half an hour)
	$(BIN)/python -m bench.router $(BENCH_ARGS)

bench-cluster: dev ## 50 edits of a policy in a cluster: from publication to applied in 2 front-ends x 3 router pods
	$(BIN)/python hack/bench/bench_cluster.py $(BENCH_ARGS)

## Work on it
dev: $(VENV)/.dev ## the full development environment in .venv

compile: dev ## the router with its hot modules compiled; prints the folder that goes first on PYTHONPATH
	@$(BIN)/python hack/compile/compiled.py

manifests: dev ## write anew what is made from types and chart: CRDs, their reference, kustomize bases
	$(BIN)/python -m headrace_api.crd
	$(BIN)/python hack/manifests/generate.py

cluster-up: ## a real Kubernetes on this machine, for tests (hack/cluster/README.md); the first time it is compiled
	hack/cluster/cluster.py up

cluster-down: ## take it down, and whatever killed runs left
	hack/cluster/cluster.py down

format: dev ## format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

golden: dev ## write golden texts anew; read the difference before you commit it
	$(BIN)/pytest -q tests/golden tests/integration/manifests --update-golden

lock: ## write requirements/*.txt anew: versions and hashes, no addresses
	hack/dev/lock.sh

clean: ## remove what the other commands made in this checkout
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage*
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.demo: requirements/all.txt pyproject.toml hack/dev/venv.sh
	hack/dev/venv.sh $(VENV) requirements/all.txt
	@touch $@

$(VENV)/.dev: requirements/dev.txt pyproject.toml hack/dev/venv.sh
	hack/dev/venv.sh $(VENV) requirements/dev.txt
	@touch $@ $(VENV)/.demo

.PHONY: help demo check need test test-long lint types layers coverage bench-lp bench-pick bench-http1 bench-router bench-cluster demo-cluster e2e dev manifests \
	cluster-up cluster-down compile format golden lock clean
