# Runs from any directory: make -C path/to/checkout train
ROOT := $(dir $(abspath $(lastword $(MAKEFILE_LIST))))
PYTHON ?= python3
VENV := $(ROOT).venv
READY := $(VENV)/.ready
RUN := $(VENV)/bin/python -m

.DEFAULT_GOAL := help
.PHONY: help setup train test lint clean

help: ## say what there is
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

setup: $(READY) ## set up .venv with everything pinned in constraints.txt

$(READY): $(ROOT)pyproject.toml $(ROOT)constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "rope_lab needs Python 3.11 or newer; say: make PYTHON=python3.12 …")'
	$(PYTHON) -m venv $(VENV)
	cd $(ROOT) && $(RUN) pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

train: $(READY) ## train the default run: substring_by_index, RoPER, about two minutes on a laptop
	cd $(ROOT) && $(RUN) rope_lab.train

test: $(READY) ## run the tests
	cd $(ROOT) && $(RUN) pytest

lint: $(READY) ## check style and formatting
	cd $(ROOT) && $(RUN) ruff check . && $(RUN) ruff format --check .

clean: ## remove .venv (run records stay)
	rm -rf $(VENV)
