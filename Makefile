# Two commands do everything on a fresh machine with Python and make: `make profile` and `make test`.
# Everything goes into .venv; nothing outside this folder is touched.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
MODEL  ?= resnet50
ARGS   ?=
JOBS   ?= 2
# Where constraints.txt pins versions that this machine's Python or platform lacks: make profile CONSTRAINTS=
CONSTRAINTS ?= -c constraints.txt

.PHONY: profile test lint check gpu-check format clean help

help:
	@echo "make profile    install into .venv and profile $(MODEL) (MODEL=..., ARGS='--mode training')"
	@echo "make test       install with the test tools and run the whole test suite (JOBS=2 processes)"
	@echo "make check      the fast half: ruff, mypy --strict (make lint), unit tests"
	@echo "make gpu-check  everything that needs an NVIDIA GPU, as one JSON of results; needs no network"
	@echo "make clean      remove .venv and caches; runs/ stays"

profile: $(VENV)/.installed
	$(BIN)/rooflines profile --model $(MODEL) $(ARGS)

# A file's tests stay together, because they share what takes long to make. Each of the JOBS processes takes up to 5 GB. What other
# tests would disturb runs afterwards.
test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile -m "not alone"
	$(BIN)/python -m pytest -m alone

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

check: lint
	$(BIN)/python -m pytest -m unit -q

# Installs nothing, because a GPU machine may have no network: .venv where it is there, else the interpreter that has torch.
gpu-check:
	$(firstword $(wildcard $(BIN)/python) $(PYTHON)) benchmarks/gpu_check.py $(ARGS)

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(VENV)/.installed: pyproject.toml constraints.txt
	@echo "installing into $(VENV) (torch is large: a few minutes on a fresh machine)"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(CONSTRAINTS) -e .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(CONSTRAINTS) -e ".[dev]"
	@touch $@

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
	find rooflines tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
