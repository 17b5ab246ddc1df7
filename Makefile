# Two commands: `make train` installs and runs the main job, `make test` installs and runs the tests.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
TRAIN_ARGS ?=
TEST_ARGS ?=

# Tests and examples start hundreds of interpreters: what they import is compiled once, not by each of them.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: install train test lint types bench docs site lock

# pip is slow to find that there is nothing to do; the stamps make repeated calls quick.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; (3, 11) <= v < (3, 14) or sys.exit("futurex needs Python 3.11 to 3.13, not %d.%d; name another one: make PYTHON=python3.12 ..." % v)'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.locked: requirements.lock | $(BIN)/python
	$(BIN)/python -m pip install --disable-pip-version-check -r requirements.lock
	@touch $@

$(VENV)/.installed: $(VENV)/.locked pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	@touch $@

$(VENV)/.bench: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[bench]'
	@touch $@

install: $(VENV)/.installed

train: install
	$(BIN)/futurex train har $(TRAIN_ARGS)

# Three processes at a time: tests of clusters mostly wait, and others have the cores meanwhile.
test: install
	$(BIN)/python -m pytest -n 3 --dist worksteal $(TEST_ARGS)

lint: install
	$(BIN)/ruff check .

types: install
	$(BIN)/mypy

bench: $(VENV)/.bench
	$(BIN)/python -m benchmarks all

docs: install
	$(BIN)/python tools/run_docs.py

site: install
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docs]'
	$(BIN)/mkdocs build --strict

# uv resolves for every platform and Python at once; the file it writes is plain pip's.
lock:
	uv pip compile --quiet --universal --no-config --no-header --python-version 3.11 --upgrade \
		--default-index https://pypi.org/simple --no-emit-index-url --no-emit-find-links --no-emit-package futurex \
		--extra har --extra train --extra test --extra ucx --annotation-style line pyproject.toml -o requirements.lock
