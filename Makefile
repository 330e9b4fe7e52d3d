# SPDX-License-Identifier: Apache-2.0
# Each goal first installs what it needs: a virtual environment in .venv, compilers, emulators.

PYTHON ?= python3
BIN := .venv/bin
# Marks of finished installations: of the requirements of `make demo`, and of all others.
SMALL := .venv/small
READY := .venv/ready

# Real models to test and demonstrate with; without them the network that ships with the package is used.
export MEGCC_MODELS ?= $(abspath $(wildcard ../shared/models))

help:
	@echo "make demo    compile, build and run a small network on this machine; needs Python and a C compiler"
	@echo "make setup-all  install what the tests need: cross compilers, emulators, a browser, TVM; make test does it too"
	@echo "make check   the quick tests and the linter (3 minutes at most)"
	@echo "make test    the tests of a change (half an hour)"
	@echo "make test-all  all tests: every kernel on every CPU, the large networks"
	@echo "make test-tvm  what concerns TVM with Relax, on every release of it that is supported"
	@echo "make mlperf-tiny  the benchmark's networks on emulated Cortex-M cores; MODELS=a checkout of mlcommons/tiny"
	@echo "make models  small published models, each compared with ONNX Runtime or LiteRT; ONLY=text PLAN=1"
	@echo "make fuzz    the runtime against damaged containers and any calls, programs and any data; MINUTES=1 or RUNS=10000000, ONLY=boxes"
	@echo "make misra   the runtime and the C of four networks against MISRA C:2012; WRITE=1 writes docs/misra.md"
	@echo "make graphs  random models against the references of their formats, on every target; MINUTES=60, CASES=1000, SEED=2"
	@echo "make wheel   the installable package and its sources, in dist/"
	@echo "make release VERSION=1.2.3  archives that two builds agree on, hashes, bill of materials; without VERSION a trial"
	@echo "make docs    the documentation site, in build/docs/"
	@echo "make clean   remove everything that was made"

$(SMALL): pyproject.toml setup.py scripts/bootstrap.py
	$(PYTHON) scripts/bootstrap.py .venv
	@touch $@

$(READY): pyproject.toml setup.py scripts/bootstrap.py
	$(PYTHON) scripts/bootstrap.py .venv --all
	@touch $(SMALL) $@

demo: $(SMALL)
	$(BIN)/megcc demo -o demo_out/digits_megcc

setup-all: $(READY)

check: $(READY)
	$(BIN)/pytest -q -n auto --dist loadgroup -m "not slow"
	$(BIN)/ruff check -q .

test: setup-all
	$(BIN)/pytest -q -n auto --dist loadgroup --durations 40 -m "not long"

# Writes which tests `make check` leaves out: those over 0.5 seconds of CPU, but for one of each kind.
slow-tests: $(READY)
	mkdir -p build && rm -f build/cpu.txt
	-$(BIN)/pytest -q -n auto --dist loadgroup -m "not long" --cpu $(abspath build/cpu.txt)
	$(BIN)/python scripts/slow_tests.py build/cpu.txt > tests/slow.txt

test-all: $(READY)
	$(BIN)/pytest -q -n auto --dist loadgroup

test-tvm:
	$(PYTHON) scripts/test_tvm_releases.py build/tvm

fuzz: $(READY)
	$(BIN)/python -m fuzz.run $(if $(ONLY),--only $(ONLY)) $(if $(RUNS),--runs $(RUNS),--seconds $(shell expr 60 '*' $(or $(MINUTES),1)))

misra: $(READY)
	$(BIN)/python scripts/misra.py $(if $(WRITE),--write)

graphs: $(READY)
	$(BIN)/python -m tests.differential $(if $(CASES),--count $(CASES) --seconds 1000000,--seconds \
		$(shell expr 60 '*' $(or $(MINUTES),1))) --seed $(or $(SEED),1)

# Packages are fetched into build/collection, repositories where CLONE=1; without the C compiler where PLAN=1.
models: $(READY)
	$(BIN)/python -m tests.models.collection $(if $(ONLY),--only $(ONLY)) $(if $(PLAN),--plan) $(if $(CLONE),--clone)

# Models of $MEGCC_MODELS, or of MODELS.
mlperf-tiny: $(READY)
	$(BIN)/python benchmarks/mlperf_tiny.py $(if $(MODELS),--models $(MODELS))

wheel: $(READY)
	$(BIN)/python -m build -q

# Its tools are in an environment of their own, which nothing else needs.
release:
	$(PYTHON) -m venv build/release
	build/release/bin/python -m pip install -q --disable-pip-version-check -e .[release]
	build/release/bin/python scripts/release.py $(VERSION)

# -W: a broken link is an error.
docs: $(READY)
	$(BIN)/python -m sphinx -q -W --keep-going -c docs -d build/doctrees . build/docs
	@echo "build/docs/index.html"

clean:
	rm -rf .venv build dist demo_out *.egg-info

.PHONY: help demo setup-all check test test-all test-tvm mlperf-tiny fuzz misra models graphs slow-tests wheel release docs clean
