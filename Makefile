# `make serve` sets up and serves the built-in model; `make check` gives a verdict in a minute, and
# `make test` the whole one. They need only Python 3.11 or newer; where there is no C++ compiler, one
# comes from the package index.

PYTHON ?= python3
BIN := .venv/bin
# Many processes start: compiling every module in each is half a second of each start.
unexport PYTHONDONTWRITEBYTECODE

# Of tests, each with one OpenMP thread; some wait, so there is one more than the cores that the gate
# has. A file's tests stay together, the longest files first.
WORKERS ?= 3
PYTEST := $(BIN)/python -m pytest
FAST := tests/actors tests/api tests/assembly tests/cache tests/cluster tests/loadtest tests/settings tests/shelf \
	tests/speculative tests/test_architecture.py
# Output of jobs side by side, each in one piece; make 3.81 (macOS) cannot.
SIDE_BY_SIDE := $(MAKE) --no-print-directory -j2 $(if $(filter output-sync,$(.FEATURES)),--output-sync=target)

.PHONY: serve check test test-grid setup dev lint style imports types fast format clean

serve: setup
	$(BIN)/draftwerk serve

# Format, lint, import contracts, types and the fast tests, which import no torch.
check: dev
	@begun=$$(date +%s); $(SIDE_BY_SIDE) types fast style imports; failed=$$?; \
	echo "make check: $$(($$(date +%s) - begun)) s"; exit $$failed

# All of it; pytest's last line says how long it took.
test: dev
	$(PYTEST) -n $(WORKERS) --dist loadfile --no-loadscope-reorder

# What `make test` leaves out, as every pair is in a case that it runs, or another test holds the same:
# the shapes of GPU kernels, tools by every way of drafting and every mishap, variants of families, the
# built-in model in every format, and instruction sets but avx2, avx512, neon and the processor's own.
test-grid: dev
	$(BIN)/python -m draftwerk.model.native.build --all
	$(PYTEST) -n $(WORKERS) -m grid

lint: dev
	@$(SIDE_BY_SIDE) types style imports

fast:
	$(PYTEST) $(FAST) -q --no-torch -n $(WORKERS) --dist loadfile

style:
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/python -m validation.words
	$(BIN)/python -m validation.set_order

imports:
	$(BIN)/lint-imports --no-logo

types:
	$(BIN)/python -m validation.type_check

format: dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Says what it does, how large it is and how long it took; at once where all is done.
setup:
	@PYTHONSAFEPATH= $(PYTHON) deploy/install.py

dev:
	@PYTHONSAFEPATH= $(PYTHON) deploy/install.py --dev

clean:
	rm -rf .venv build *.egg-info
