# The project's commands. `make serve` and `make test` work on a fresh machine with Python 3.11 or
# 3.12 and make; both build the environment in .venv when it is missing or out of date.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# What starts no Ray, so that files of it can run side by side.
PURE_TESTS := tests/architecture tests/contract tests/statistical tests/unit cluster replicas policy_service drafters models
# Threads that wait must not burn the cores of those that work, the less the more there is beside.
export GOMP_SPINCOUNT ?= 3000
test test-slow: export GOMP_SPINCOUNT := 1000

.PHONY: help env serve test check check-lint check-format check-types check-imports fix bench-serve bench-engine bench-drafters test-slow clean

help: ## Say what can be made.
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 22

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

test: $(STAMP) ## Run the tests (ARGS="tests/unit -k config").
	@$(BIN)/banditserve models fetch
ifdef ARGS
	@$(BIN)/python -m pytest -m "not slow" $(ARGS)
else
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not slow" -n auto --dist loadfile $(PURE_TESTS)
	@$(BIN)/python -m pytest -m "not slow" tests/integration tests/e2e
endif

check: $(STAMP) ## Lint, format, types, import contracts, side by side; edits nothing.
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target --keep-going \
	  check-types check-imports check-lint check-format

check-lint: ; @$(BIN)/ruff check .
check-format: ; @$(BIN)/ruff format --check .
check-types: ; @$(BIN)/mypy
check-imports: ; @$(BIN)/lint-imports --no-logo >.venv/.imports 2>&1 || { cat .venv/.imports; exit 1; }; tail -n 1 .venv/.imports

fix: $(STAMP) ## Apply what the linter and the formatter can repair.
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench-serve: $(STAMP) ## Measure tokens per second through HTTP; writes .bench/serve.json.
	@$(BIN)/python -m tests.benchmarks.serve $(ARGS)

bench-engine: $(STAMP) ## Measure the engine against its baselines; writes .bench/engine.json.
	@$(BIN)/python -m tests.benchmarks.engine $(ARGS)

WORKLOADS ?=
bench-drafters: $(STAMP) ## Measure every drafting method (WORKLOADS=DIR, ARGS="--prompts 4"); writes .bench/drafters.json.
	@$(BIN)/python -m tests.benchmarks.drafters $(if $(WORKLOADS),--workloads $(WORKLOADS)) $(ARGS)

test-slow: $(STAMP) ## Run the tests that take long.
	@$(BIN)/banditserve models fetch
	@$(BIN)/python -m pytest -m slow $(ARGS)

clean: ## Remove the environment and everything generated.
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .grimp_cache .bench
