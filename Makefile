# Everything runs in .venv, made on first use; a stamp per extra remembers what is installed.
# Other interpreter: make test PYTHON=python3.12     More test workers: make test WORKERS=8     Longer: make campaign SECONDS=3600

PYTHON  ?= python3
WORKERS ?= 2
SECONDS ?= 120
OUT     ?= results/campaign.json
VENV    := .venv
BIN     := $(VENV)/bin
SOURCES := $(wildcard src tests examples benchmarks campaign docs/*.py)

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test lint format bench campaign docs screenshots clean
MAKEFLAGS += --no-print-directory
# Threads that wait sleep, or a busy machine would slow small work down many times; benchmarks have the machine to themselves.
demo test campaign: export OMP_WAIT_POLICY ?= passive

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.installed-demo ## train a small solver, test it, write a page
	@rm -rf demo
	@$(BIN)/convergent demo

test: $(VENV)/.installed-test ## run every test
	@$(BIN)/python -m pytest -n $(WORKERS) $(ARGS)

lint: $(VENV)/.installed-lint ## check style and types
	@$(BIN)/ruff check $(SOURCES)
	@$(BIN)/ruff format --check $(SOURCES)
	@$(BIN)/mypy

format: $(VENV)/.installed-lint ## put the sources in style
	@$(BIN)/ruff check --fix-only --quiet $(SOURCES)
	@$(BIN)/ruff format $(SOURCES)

bench: $(VENV)/.installed-bench ## measure every speed claim
	@$(BIN)/python -m benchmarks $(ARGS)

campaign: $(VENV)/.installed-test ## random systems, kills and bad input, checked for SECONDS
	@$(BIN)/python -m campaign --seconds $(SECONDS) --out $(OUT) $(ARGS)

docs: $(VENV)/.installed-docs ## build the pages into site/
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --site-dir site

screenshots: docs ## pictures of every page, light, dark and narrow, in .cache/screenshots
	@$(BIN)/python docs/screenshots.py site .cache/screenshots

clean: ## remove what was built, but not .venv
	@rm -rf site build dist .pytest_cache .hypothesis .mypy_cache .ruff_cache
	@find $(SOURCES) -type d -name __pycache__ -prune -exec rm -rf {} +

$(BIN)/python:
	@echo "creating $(VENV)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "needs Python 3.11 or later: make PYTHON=...")'
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.installed-%: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing convergent[$*] into $(VENV)"
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e '.[$*]'
	@touch $@
