# The usual errands. `make` lists them; nothing here is needed in production.

VENV := .venv
BIN := $(VENV)/bin
# The first Python on PATH that is new enough, unless the caller names one: PYTHON=python3.12 make run
PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$python -c $(NEW_ENOUGH) 2>/dev/null && echo $$python && break; done)
NEW_ENOUGH := 'import sys; sys.exit(sys.version_info < (3, 11))'
MADE_WITH := $(shell cat $(VENV)/made-with 2>/dev/null)
# Options for `python -m tasks up`: make run UP="--verbose"
UP :=
# Options for pytest: make test PYTEST="-k lease"
PYTEST :=
LOCK := $(BIN)/uv pip compile --quiet --no-config --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-annotate --no-emit-package celery-lease --custom-compile-command "make lock"

ifneq ($(origin PYTHON),file)
ifneq ($(MADE_WITH),$(if $(MADE_WITH),$(PYTHON)))
$(warning $(VENV) was made with $(MADE_WITH) and stays so; to use $(PYTHON): make clean)
endif
endif

.DEFAULT_GOAL := help
.PHONY: help run test soak lint format bench lock upgrade clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: $(VENV)/run ## start everything on this machine and curate at once (stop: Ctrl-C)
	@exec $(BIN)/python -m tasks up $(UP)

test: $(VENV)/dev ## all tests, on three processes: many of them wait
	$(BIN)/python -m pytest -n 3 --dist loadfile $(PYTEST)

soak: $(VENV)/dev ## the fault tests at full length, 20 minutes: 50 leases lost at once, ten minutes of random faults
	FAULT_LEASES=50 FAULT_SECONDS=600 $(BIN)/python -m pytest tests/faults -o timeout=900 $(PYTEST)

lint: $(VENV)/dev ## style, formatting and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: $(VENV)/dev ## let ruff format and fix what it can
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

bench: $(VENV)/dev ## the benchmarks in benchmarks/
	@set -e; for script in $(wildcard benchmarks/[a-z]*.py); do echo "== $$script"; $(BIN)/python $$script; done

lock: $(VENV)/dev ## write requirements/ anew after a change in pyproject.toml, keeping pins that still fit
	echo . | $(LOCK) $(UPGRADE) - --group dev -o requirements/dev.txt
	echo . | $(LOCK) $(UPGRADE) - --group app -c requirements/dev.txt -o requirements/run.txt

upgrade: ## write requirements/ anew with the newest versions
	$(MAKE) lock UPGRADE=--upgrade

clean: ## forget the virtual environment and caches (not the data in .dev)
	rm -rf $(VENV) dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +

# What is installed. Hashes are checked, nothing is resolved, and it is done again only after a change of the lock.
$(VENV)/run: requirements/run.txt pyproject.toml | $(BIN)/pip
	$(call install,requirements/run.txt)
	@touch $@

$(VENV)/dev: requirements/dev.txt pyproject.toml | $(BIN)/pip
	$(call install,requirements/dev.txt)
	@touch $@ $(VENV)/run  # the lock for running is part of this one

define install
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $(1)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
endef

$(BIN)/pip:
	@test -n "$(PYTHON)" || { echo "No Python 3.11 or newer on PATH. If it is elsewhere: PYTHON=/path/to/python3 make ..."; exit 1; }
	@$(PYTHON) -c $(NEW_ENOUGH) || { echo "$(PYTHON) does not start or is older than 3.11."; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo "$(PYTHON) cannot make virtual environments. On Debian and Ubuntu: sudo apt install python3-venv"; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	@echo $(PYTHON) > $(VENV)/made-with
