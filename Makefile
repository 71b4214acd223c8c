# Everything starts from a fresh clone: Python 3.10 or newer, git, make and a C++ compiler.
#   PYTHON=python3.12 make run     another interpreter for .venv
#   make test PYTEST_ARGS="-x -k stats"

PYTHON ?=
PYTEST_ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
READY := $(VENV)/.ready
# -qq: pip says nothing but errors. `make PIP="…"` where something else is wanted.
PIP ?= $(PY) -m pip install --disable-pip-version-check --no-input -qq -c constraints.txt

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help run test test-slow bench lint format clean $(VENV)

help: ## show this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: $(READY) ## the quick suite: six models, eager against inductor, printed and stored
	@$(BIN)/torchstone run --budget-per-case 10s

# Tests start hundreds of processes: with byte code each is a third quicker. Property tests try the
# same examples every time (tests/conftest.py).
test: lint ## lint, then every test that is not slow
	@echo "== pytest"
	@env -u PYTHONDONTWRITEBYTECODE SAME_EXAMPLES=1 $(PY) -m pytest -m "not slow" -n 2 --dist worksteal $(PYTEST_ARGS)

# Where only outcomes count, two at a time; where time is looked at, one.
OUTCOMES := tests/cli/test_run_suites.py tests/workloads
test-slow: $(READY) ## the slow tests
	@$(PY) -m pytest -m slow -n 2 --dist load $(OUTCOMES) $(PYTEST_ARGS)
	@$(PY) -m pytest -m slow $(OUTCOMES:%=--ignore=%) $(PYTEST_ARGS)

# Start-up is one of the things measured, so byte code is allowed here even where it is off.
bench: $(READY) ## how precise and how costly measuring is; results in build/
	@mkdir -p build
	@echo "== overhead"
	@env -u PYTHONDONTWRITEBYTECODE $(PY) benchmarks/overhead.py --out build/overhead.json
	@echo "== profiling"
	@env -u PYTHONDONTWRITEBYTECODE $(PY) benchmarks/profiling_cost.py --out build/profiling.jsonl
	@echo "== identical arms and known slow-downs"
	@env -u PYTHONDONTWRITEBYTECODE $(PY) benchmarks/aa.py live --out build/aa.jsonl
	@env -u PYTHONDONTWRITEBYTECODE $(PY) benchmarks/aa.py live --load --out build/aa.jsonl
	@$(PY) benchmarks/aa.py report build/aa.jsonl
	@echo "== other conditions, by resampling"
	@env -u PYTHONDONTWRITEBYTECODE $(PY) benchmarks/aa.py record --out build/aa-pools.jsonl
	@$(PY) benchmarks/aa.py pools build/aa-pools.jsonl
	@echo "== explaining"
	@env -u PYTHONDONTWRITEBYTECODE $(PY) benchmarks/ledger.py --out build/ledger.jsonl
	@env -u PYTHONDONTWRITEBYTECODE $(PY) benchmarks/view_cost.py --out build/view.json

lint: $(READY) ## ruff, mypy and the import contracts
	@echo "== ruff check"
	@$(PY) -m ruff check
	@echo "== ruff format"
	@$(PY) -m ruff format --check
	@echo "== mypy"
	@$(PY) -m mypy
	@echo "== import contracts"
	@$(BIN)/lint-imports

format: $(READY) ## put the source in order
	@$(PY) -m ruff check --fix-only
	@$(PY) -m ruff format

clean: ## remove .venv, caches and results
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

$(VENV): $(READY)

# Made once, and again when what it is made from changes. torch comes first, so that nothing else
# has a say in which one.
$(READY): pyproject.toml constraints.txt
	@set -e; \
	new_enough='import sys; sys.exit(sys.version_info < (3, 10))'; \
	if ! $(PY) -m pip --version >/dev/null 2>&1 || ! $(PY) -c "$$new_enough"; then \
	  found=; \
	  for candidate in $(or $(PYTHON),python3 python3.13 python3.12 python3.11 python3.10); do \
	    if "$$candidate" -c "$$new_enough" >/dev/null 2>&1; then found=$$candidate; break; fi; \
	  done; \
	  if [ -z "$$found" ]; then \
	    echo "Torchstone needs Python 3.10 or newer, and $(or $(PYTHON),python3) is older or missing." >&2; \
	    echo "Install one, or name one: make PYTHON=/path/to/python3" >&2; \
	    exit 2; \
	  fi; \
	  echo "Making $(VENV) with $$($$found --version)."; \
	  "$$found" -m venv --clear $(VENV); \
	fi
	@echo "Installing torch (large, once) ..."
	@$(PIP) torch
	@echo "Installing torchstone and its tools ..."
	@$(PIP) -e '.[dev,torch,suites,web,profile]'
	@touch $@
	@echo "Ready: $(BIN)/torchstone."
