# SPDX-License-Identifier: Apache-2.0
# Everything here sets up what it needs by itself: a virtual environment in .venv, compilers, emulators.

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready

# Real models to test and demonstrate with; without them the network that ships with the package is used.
export MEGCC_MODELS ?= $(abspath $(wildcard ../shared/models))

help:
	@echo "make demo    compile a network for this machine and for arm64, run both, show what came out"
	@echo "make check   the quick tests and the linter (3 minutes at most)"
	@echo "make test    all tests"
	@echo "make wheel   the installable package, in dist/"
	@echo "make clean   remove everything that was made"

$(READY): pyproject.toml setup.py scripts/bootstrap.py
	$(PYTHON) scripts/bootstrap.py .venv
	@touch $@

demo: $(READY)
	$(BIN)/python scripts/demo.py

check: $(READY)
	$(BIN)/pytest -q -n auto --dist loadgroup -m "not slow"
	$(BIN)/ruff check -q .

test: $(READY)
	$(BIN)/pytest -q -n auto --dist loadgroup

wheel: $(READY)
	$(BIN)/python -m build -q --wheel

clean:
	rm -rf .venv build dist demo_out *.egg-info

.PHONY: help demo check test wheel clean
