# make venv   installs Strata and its test tools into .venv
# make run    installs, writes a config for the bundled model and serves it on 127.0.0.1:8080
# make test   installs and runs the whole test suite
# make check  the same plus lint, format and types: what a change must pass
#
# Nothing is written outside this folder, and nothing but the package index is asked.

PYTHON ?= python3
VENV := .venv
STAMP := $(VENV)/.installed
BIN := $(VENV)/bin
HOST ?= 127.0.0.1
PORT ?= 8080
JOBS ?= 2

.PHONY: venv run test check docs clean

venv: $(STAMP)

# --no-cache-dir: pip's cache would lie in the home folder.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --no-cache-dir --progress-bar off --constraint constraints.txt --editable '.[test]'
	@touch $(STAMP)

run: venv
	$(BIN)/strata setup --model strata-tiny --yes
	$(BIN)/strata run strata-tiny.json --host $(HOST) --port $(PORT)

test: venv
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal --durations 10

check: venv
	scripts/check

docs: venv
	$(BIN)/python scripts/gen_cli_docs.py
	$(BIN)/python scripts/gen_model_docs.py
	$(BIN)/python scripts/gen_structure_tables.py
	$(BIN)/python scripts/gen_readme_tables.py

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .scratch
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
