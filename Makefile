# Everything starts from a bare clone: python3.11, pip and make are enough.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test check format clean

demo: $(VENV)
	$(BIN)/python -m rayctsl.demo

test: check
	$(BIN)/python -m pytest

check: $(VENV)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(VENV)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# torch first and by itself, so that the constrained build is taken before any package asks for a newer one.
$(VENV): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $(VENV)

clean:
	rm -rf $(VENV) runs
