# Two commands do everything on a fresh machine with Python and make: `make profile` and `make test`.
# Everything goes into .venv; nothing outside this folder is touched.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
MODEL  ?= resnet50
ARGS   ?=
# For two cores: many tests wait for processes that they have started.
JOBS   ?= 3
# Where constraints.txt pins versions that this machine's Python or platform lacks: make profile CONSTRAINTS=
CONSTRAINTS ?= -c constraints.txt
# The extra with CUDA kernels for this machine's driver; none without a driver. Another: make profile EXTRA=cuda12, none: EXTRA=
# Drivers from 610 on call "CUDA Version" "CUDA UMD Version". The driver is asked once, and only where the answer is used.
EXTRA ?= $(eval EXTRA := $(shell nvidia-smi 2>/dev/null | sed -n -E \
	-e 's/.*CUDA (UMD )?Version: 12\..*/cuda12/p' -e 's/.*CUDA (UMD )?Version: (1[3-9]|[2-9][0-9])\..*/cuda13/p'))$(EXTRA)
# The package index's torch is built for CUDA 13, which a driver for CUDA 12 does not run.
WHEELS = $(if $(filter cuda12,$(EXTRA)),--extra-index-url https://download.pytorch.org/whl/cu126)
# The tests compile our CUDA kernels without a GPU, for CUDA 13, which cannot be installed beside CUDA 12.
COMMA := ,
TOOLS = $(if $(filter cuda12,$(EXTRA)),dev,dev$(COMMA)ptx)
# Installed again where another extra is asked for.
STAMP := $(VENV)/.installed$(if $(filter command environment,$(firstword $(origin EXTRA))),-$(EXTRA))

# Hundreds of tests start processes, which would otherwise compile the package again where the environment forbids to keep bytecode.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest
# A file's tests stay together, because they share what takes long to make. All of the JOBS processes take up to 8 GB together.
TOGETHER := -n $(JOBS) --dist loadfile --ignore=tests/alone
# Threads that wait do not spin, because those of the other processes need the processor: a seventh less time.
SHARING := OMP_WAIT_POLICY=PASSIVE

.PHONY: profile test test-ci test-all test-versions lint check gpu-check format clean help

help:
	@echo "make profile    install into .venv and profile $(MODEL) (MODEL=..., ARGS='--mode training', EXTRA=cuda12)"
	@echo "make test       install with the test tools and test every law on small cases (JOBS=3 processes, seven minutes on two cores)"
	@echo "make test-ci    with whole programs, compilers and pages in a browser: what CI runs, half an hour"
	@echo "make test-all   the whole test suite, for a release"
	@echo "make test-versions  unit tests on the oldest supported torch and on every Python that this machine has"
	@echo "make check      the fast part: ruff, mypy --strict (make lint), tests of traces, formulas and data sheets"
	@echo "make gpu-check  everything that needs an NVIDIA GPU, in ten minutes and without a network (ARGS=\"-k ceilings\")"
	@echo "make clean      remove .venv and caches; runs/ stays"

profile: $(STAMP)
	$(BIN)/rooflines profile --model $(MODEL) $(ARGS)

test: $(VENV)/.installed-dev
	$(SHARING) $(PYTEST) $(TOGETHER) --durations=30 -m "not slow and not ci"

# With the tests that take seconds: whole programs, compilers, pages in a browser. Tests that others would disturb run afterwards.
test-ci: $(VENV)/.installed-dev
	$(SHARING) $(PYTEST) $(TOGETHER) --durations=30 -m "not slow"
	$(PYTEST) -m "not slow" tests/alone

# The oracle measures its answers again, every network runs at full size, and Hypothesis draws new examples.
test-all: $(VENV)/.installed-dev
	$(SHARING) $(PYTEST) $(TOGETHER) --hypothesis-profile random
	$(PYTEST) --hypothesis-profile random tests/alone

test-versions: $(VENV)/.installed-dev
	$(BIN)/python tests/versions.py

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell rooflines docs tests benchmarks README.md CONTRIBUTING.md
	$(BIN)/mypy

check: lint
	$(PYTEST) -q -m "not slow and not ci" tests/roofline tests/profiler/read tests/device_specs/test_catalog.py tests/test_*.py

# Installs nothing, because a GPU machine may have no network: .venv where it is there, else the interpreter that has torch.
gpu-check:
	@PYTHONPATH="$(CURDIR)$${PYTHONPATH:+:$$PYTHONPATH}" $(firstword $(wildcard $(CURDIR)/$(BIN)/python) $(PYTHON)) -m pytest \
	  -p tests.gpu.evidence -p no:cacheprovider -m gpu tests/gpu --ignore=tests/gpu/rehearsal --evidence benchmarks/results $(ARGS)

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(STAMP): pyproject.toml constraints.txt
	@echo "installing into $(VENV) (torch is large: a few minutes on a fresh machine)"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(CONSTRAINTS) $(WHEELS) -e ".[all$(EXTRA:%=$(COMMA)%)]"
	@touch $@

$(VENV)/.installed-dev: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(CONSTRAINTS) $(WHEELS) -e ".[$(TOOLS)]"
	@touch $@

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
	find rooflines tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
