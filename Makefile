# Everything starts from a bare clone: python3.11, pip and make are enough.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin

# Where bytecode is not kept, each of the two hundred processes that a test run starts compiles the package anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-all test-random coverage mutants check lint types suite format zoo clean

demo: $(VENV)
	$(BIN)/python -m rayctsl.demo

# Lint, types and the suite side by side; the suite itself in three lanes: the Ray cluster, the services, the rest.
test: $(VENV)
	$(MAKE) --no-print-directory -j3 lint types suite

test-all: $(VENV)
	$(MAKE) --no-print-directory -j3 lint types suite SELECT=

# Any order; pytest prints the seed that repeats it: make test-random SEED=1234
test-random: $(VENV)
	$(BIN)/python -m pytest -n 3 --dist loadgroup $(SELECT) -o addopts="-ra --strict-markers -p no:cacheprovider -p no:schemathesis" \
		--import-mode=importlib $(if $(SEED),--randomly-seed=$(SEED))

SELECT ?= -m "not long"
suite: $(VENV)
	$(BIN)/python -m pytest -n 3 --dist loadgroup --no-loadscope-reorder $(SELECT)

# Line and branch coverage, of the processes that tests start too. Proofs and measurements run in long tests.
PROOFS := tests/bench tests/cluster/test_cluster_nodes.py tests/serve/test_serve_bench.py tests/serve/test_serve_recovery.py \
	tests/serve/test_serve_uploads.py tests/serve/test_serve_openapi.py::test_no_guest_hurts_the_service
coverage: $(VENV)
	rm -f .coverage .coverage.*
	$(BIN)/python -m coverage run -m pytest -n 3 --dist loadgroup --no-loadscope-reorder $(SELECT)
	$(BIN)/python -m coverage run -m pytest -n 3 --dist loadgroup --no-loadscope-reorder -m long $(PROOFS)
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python tests/coverage_by_room.py

mutants: $(VENV)
	$(BIN)/python -m tests.mutants

check: lint types

lint: $(VENV)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-logo --no-cache

types: $(VENV)
	$(BIN)/mypy

format: $(VENV)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The initializations that come with the package, from configs/zoo; minutes each.
zoo: $(VENV)
	$(BIN)/rayctsl zoo build

# torch first and by itself, so that the constrained build is taken before any package asks for a newer one.
$(VENV): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $(VENV)

clean:
	rm -rf $(VENV)
