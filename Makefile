# Every path here is relative to this folder; from another: make -C path/to/checkout train
ifneq ($(lastword $(MAKEFILE_LIST)) $(wildcard rope_lab/__init__.py),Makefile rope_lab/__init__.py)
$(error this Makefile runs in its own folder; run: make -C path/to/checkout)
endif

export PYTHON ?= python3
READY := .venv/.ready
RUN := .venv/bin/python -m

# `make train seed=1` means ARGS=seed=1: all typed variables except ARGS and PYTHON are settings. MAKEOVERRIDES holds
# them with spaces, backslashes and $ escaped; ␠ stands for a space, since a space would end a word.
SPACE := $() $()
WORDS = $(subst $$$$,$$,$(subst \\,\,$(subst \$(SPACE),␠,$(MAKEOVERRIDES))))
SETTINGS = $(filter-out ARGS=% PYTHON=%,$(subst ','\'',$(WORDS)))
TYPED = $(subst ␠,$(SPACE),$(SETTINGS:%='%'))

QUICK := $(addprefix tests/test_,$(addsuffix .py,attention data house model positions))

.DEFAULT_GOAL := help
.PHONY: help setup train quick-table paper-table figures report site test test-slow test-quick check-claims torture browser-test ray cluster-test lint clean

help: ## show these targets
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20

setup: $(READY) ## set up .venv, every package pinned in constraints.txt

$(READY): pyproject.toml constraints.txt
	@"$$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11) and "rope_lab needs Python 3.11 or newer; run: make PYTHON=python3.12 …")'
	@echo "Installing torch and some 60 other packages into .venv: 2 to 10 minutes, silent until done"
	"$$PYTHON" -m venv .venv
	$(RUN) pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

train: $(READY) ## train a run, a minute or two on a laptop; other settings: make train position=rope seed=1
	$(RUN) rope_lab.train $(strip $(ARGS) $(TYPED))

quick-table: $(READY) ## run the quick comparison (108 runs, 36 minutes on 2 idle cores; resumes when run again), then its table
	$(RUN) rope_lab table quick wandb.mode=disabled $(ARGS); status=$$?; $(RUN) rope_lab.results && exit $$status

paper-table: $(READY) ## run the comparison at the write-up's own scale, for a GPU; to run it in parts: timeout 9m make …
	$(RUN) rope_lab table paper wandb.mode=disabled $(ARGS); status=$$?; $(RUN) rope_lab.results && exit $$status

figures: $(READY) ## rebuild the tables and figures in results/ from the rows kept there
	for kept in results/runs.jsonl results/*/runs.jsonl; do $(RUN) rope_lab.results "$$(dirname "$$kept")" || exit; done
	$(RUN) rope_lab plan
	$(RUN) rope_lab scores
	$(RUN) rope_lab board
	.venv/bin/python scripts/published_beside_ours.py
	.venv/bin/python scripts/best_rates.py
	.venv/bin/python scripts/verdicts.py
	$(RUN) rope_lab probe results/probes/*.json
	.venv/bin/python scripts/make_pictures.py
	.venv/bin/python scripts/scheme_tables.py && .venv/bin/python scripts/scheme_pages.py

report: $(READY) ## write results/report.html: verdicts, charts and every run (ARGS='FOLDER… --out FILE.html')
	$(RUN) rope_lab.report $(ARGS)

site: $(READY) ## build these pages and the report as HTML in site/, for a static web host
	.venv/bin/python scripts/make_site.py site && $(RUN) rope_lab.report results --out site/report.html

test: $(READY) ## run the tests (2 minutes on 2 cores)
	OMP_NUM_THREADS=1 $(RUN) pytest -n auto

test-slow: $(READY) ## run the slower tests: every page and scheme, signals, kills, torchrun, W&B without a network
	OMP_NUM_THREADS=1 $(RUN) pytest -n auto -m slow

test-quick: $(READY) ## run the tests of schemes, attention, model and data (half a minute)
	OMP_NUM_THREADS=1 $(RUN) pytest -n auto $(QUICK)

check-claims: $(READY) ## check that the numbers and tables of README, docs and results pages are those of the records
	OMP_NUM_THREADS=1 $(RUN) pytest -n auto -m claims

torture: $(READY) ## run the tests that take minutes: runs killed at random, 100,000 problems per recipe, all fuzz cases
	FUZZ=1 $(RUN) pytest -m 'torture or fuzz' -v

browser-test: $(READY) ## open the report in Chromium and click through it; lists missing programs
	.venv/bin/python tests/test_browser.py && $(RUN) pytest -m browser -v

ray: $(READY) ## add the launcher for Ray: hydra/launcher=ray
	$(RUN) pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[ray]'

cluster-test: $(READY) ## run tables on a Ray and a Slurm of two nodes that it starts here; lists missing programs
	OMP_NUM_THREADS=1 $(RUN) pytest -m cluster -v -rs

lint: $(READY) ## check style, formatting and types
	$(RUN) ruff check . && $(RUN) ruff format --check . && $(RUN) mypy --no-error-summary

clean: ## remove .venv; run folders stay
	rm -rf .venv
