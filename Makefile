PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
HOST ?= 127.0.0.1
PORT ?= 8750
STORE ?= .packhouse/store
RUNARGS ?=
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header

.PHONY: help setup run test test-slow lint bench bench-stores bench-load bench-big openapi lock clean

help:            ## show the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/'

setup: $(STAMP)  ## make the virtual environment with the locked packages

$(STAMP): requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit("packhouse needs Python 3.11 or newer, this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(STAMP)

run: setup       ## ingest REPO (a URL or a path; default: this checkout) and serve it
	$(BIN)/packhouse run $(if $(REPO),'$(REPO)',--name local/packhouse) --host $(HOST) --port $(PORT) --store $(STORE) $(RUNARGS)

test: setup      ## the tests, within 10 minutes on two cores
	$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile $(TESTARGS)

test-slow: setup ## long fuzzing, kill and load runs
	$(BIN)/python -m pytest -m slow --timeout 3600 -n auto --maxprocesses 4 --dist worksteal $(TESTARGS)

lint: setup      ## ruff and mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Each of these writes its own section of bench/RESULTS.md, and fails on wrong answers only.
bench: setup     ## measure ingest and reads beside git, libgit2 and ripgrep
	$(BIN)/python -m bench $(BENCHARGS)

bench-stores: setup ## the same operations on every kind of store, warm and cold
	$(BIN)/python -m bench.stores $(BENCHARGS)

bench-load: setup ## point reads while 64 connections read, others search and an ingest runs
	$(BIN)/python -m bench.load $(BENCHARGS)

bench-big: setup ## a tree of 1.3 million files
	$(BIN)/python -m bench.big $(BENCHARGS)

openapi: setup   ## write the snapshot of the OpenAPI document
	$(BIN)/packhouse openapi > tests/snapshots/openapi.json

lock: setup      ## resolve the pinned versions anew: of development, and of the image
	$(BIN)/python -m pip install --quiet uv
	$(COMPILE) --extra dev pyproject.toml -o requirements.lock
	$(COMPILE) --extra build -c requirements.lock pyproject.toml -o requirements-runtime.lock

clean:           ## remove what the targets above made
	rm -rf $(VENV) .packhouse .mypy_cache .ruff_cache .pytest_cache .hypothesis build *.egg-info
