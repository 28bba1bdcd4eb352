# Needs make and Python 3.11 or newer, nothing else.
#
#   make demo        the tour, on the embedded default (a SQLite file); URL=postgresql://… runs it on another backend
#   make test        ruff, mypy, the import linter and pytest, with real servers that it starts by itself
#   make endurance   the tests that run for minutes
#   make build       wheel and sdist in dist/
#   make format      puts the code into its one format
#   make clean       removes all that the others made
#
# PYTHON=python3.12 chooses the interpreter, PYTEST_ARGS="-k sqlite -x" is handed to pytest, WORKERS=4 has four processes
# run the tests in place of two, and WORKERS=0 one, as --pdb needs it.

PYTHON ?= python3
WORKERS ?= 2
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet
SOURCES := $(wildcard locus_store tests examples benchmarks alembic)

# A tour on the embedded default needs no extra; on anything else it may need any driver.
ifeq ($(origin URL),undefined)
URL := $(value LOCUS_STORE_URL)
endif
ifeq ($(URL),)
DEMO_STAMP := $(VENV)/.installed-demo
else
DEMO_STAMP := $(VENV)/.installed-demo-all
endif

.DEFAULT_GOAL := help
.PHONY: help demo test lint check-types check-imports pytest endurance build format clean

help:
	@sed -n 's/^#   /  /p' Makefile

# In the environment, so that a password is not printed with the command.
demo: export LOCUS_STORE_URL := $(value URL)
demo: $(DEMO_STAMP)
	$(BIN)/python examples/tour.py

test: lint check-types check-imports pytest

lint: $(VENV)/.installed-test
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)

check-types: $(VENV)/.installed-test
	$(BIN)/mypy
	$(if $(wildcard examples/*.py),$(BIN)/mypy $(wildcard examples/*.py))

check-imports: $(VENV)/.installed-test
	$(BIN)/lint-imports --no-logo

pytest: $(VENV)/.installed-test
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(PYTEST_ARGS)

# Most of them wait for servers and processes, so two at a time take little more than half as long.
endurance: $(VENV)/.installed-test
	$(BIN)/python -m pytest -m endurance -n $(WORKERS) --dist worksteal -o faulthandler_timeout=1500 $(PYTEST_ARGS)

build: $(VENV)/.installed-test
	rm -rf dist
	$(BIN)/python -m build

format: $(VENV)/.installed-test
	$(BIN)/ruff check --fix --exit-zero --quiet $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

clean:
	rm -rf $(VENV) build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +

# The environment, and what each command needs in it: made once, and again when pyproject.toml says something new.
# The package is installed editable, so a change of the code needs no new installation.
$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "Python 3.11 or newer is needed; name one with: make PYTHON=python3.12 …" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
	    { echo "$(PYTHON) cannot make an environment (on Debian: install python3-venv)" >&2; exit 1; }
	@touch $@

$(VENV)/.installed-demo: pyproject.toml $(VENV)/.made
	$(PIP) --editable .
	@touch $@

$(VENV)/.installed-demo-all: pyproject.toml $(VENV)/.made
	$(PIP) --editable '.[all]'
	@touch $@ $(VENV)/.installed-demo

$(VENV)/.installed-test: pyproject.toml $(VENV)/.made
	$(PIP) --editable '.[all,test]'
	@touch $@ $(VENV)/.installed-demo $(VENV)/.installed-demo-all
