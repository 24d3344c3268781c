# One environment, .venv at the root, made from the hash-pinned files in requirements/.
# `make` alone prints the targets. `make PYTHON=python3.13 venv` chooses another interpreter.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# Extra arguments: make run ARGS="--addr :9100", make test ARGS="-k fence".
ARGS ?=
# Test processes; the suite is written for two cores.
WORKERS ?= 2
FIRST_MACHINE := azure-eastus-od-d4s-v5-1-000
SOURCES := src tests scripts $(wildcard benchmarks)

.DEFAULT_GOAL := help
.PHONY: help run arm test test-slow test-kubernetes test-deploy venv venv-lint lint format lock proto bench bench-azure bench-prices docs clean

help: ## Print this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  make %-16s %s\n", $$1, $$2 }'

run: venv ## Start the daemon on the simulated region with 32 slots
	@echo
	@echo "Starting on the simulated region. In a second terminal, try:"
	@echo
	@echo "  $(BIN)/bigfleet-azure machines list"
	@echo "  $(BIN)/bigfleet-azure machines create $(FIRST_MACHINE) --wait"
	@echo "  $(BIN)/bigfleet-azure machines configure $(FIRST_MACHINE) --cluster demo --wait"
	@echo
	@exec $(BIN)/bigfleet-azure --use-fake-backend --seed-count 32 $(ARGS)

arm: venv ## Start the ARM double, a fake Azure to point the daemon at
	@exec $(BIN)/python -m tests.support.arm $(ARGS)

test: venv ## Run the tests (all but the slow group)
	$(BIN)/pytest -n $(WORKERS) $(ARGS)

test-slow: venv ## Run the slow group of tests
	$(BIN)/pytest -n $(WORKERS) -m slow $(ARGS)

test-kubernetes: venv ## Run the tests against a real kube-apiserver (its first build takes minutes)
	$(BIN)/python -m scripts.build_kubernetes
	$(BIN)/python -m scripts.build_helm
	$(BIN)/pytest -m kubernetes tests/kubernetes $(ARGS)

test-deploy: venv ## Run the tests of image, chart, Terraform and alerts (with the tools that are there)
	$(BIN)/python -m scripts.build_helm
	$(BIN)/python -m scripts.stand_in_images
	$(BIN)/pytest -m deploy $(ARGS)

venv: $(VENV)/.stamp-test ## Make .venv with the test group (nothing to do while the lock is unchanged)

venv-lint: $(VENV)/.stamp-lint ## Add the lint group to .venv

lint: venv-lint ## Check style, types, import floors and the Dockerfile
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/zizmor --offline --quiet --persona=auditor .github
	@# The lint group carries hadolint, but not for every platform.
	@if [ -x $(BIN)/hadolint ]; then echo "$(BIN)/hadolint Dockerfile"; $(BIN)/hadolint Dockerfile; \
	elif [ "$${REQUIRE_TOOLS:-}" = 1 ]; then echo "error: hadolint is not in $(VENV)" >&2; exit 1; \
	else echo "SKIPPED: hadolint is not in $(VENV), the Dockerfile was not checked" >&2; fi

format: venv-lint ## Rewrite the sources in the project's style
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

lock: venv-lint ## Write requirements/*.txt anew from pyproject.toml (UPGRADE=1 takes the newest versions)
	$(BIN)/python scripts/lock.py $(if $(UPGRADE),--upgrade)

proto: venv ## Write src/bigfleet_azure/_pb anew from proto/
	$(BIN)/python scripts/generate_proto.py

bench-azure: venv ## Measure the Azure backend against the ARM double, print a table
	$(BIN)/python -m benchmarks.azure $(ARGS)

bench-prices: venv ## Measure prices, eviction rates and notices, print a table
	$(BIN)/python -m benchmarks.prices $(ARGS)

bench: venv ## Measure speed and size, print a table
	$(BIN)/python -m benchmarks $(ARGS)

docs: $(VENV)/.stamp-docs ## Build the documentation into site/; a broken link fails
	$(BIN)/zensical build --clean --strict

clean: ## Remove the environment, caches and build products
	rm -rf $(VENV) .tools .cache dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# pyproject.toml is a prerequisite because an editable install copies entry points and metadata from it.
$(VENV)/.stamp-test: requirements/test.txt pyproject.toml scripts/check_python.py
	@command -v $(PYTHON) >/dev/null || { \
		echo "error: $(PYTHON) is not installed; install Python 3.11 or newer" \
			"(Debian, Ubuntu: apt-get install python3 python3-venv)." >&2; exit 1; }
	@$(PYTHON) scripts/check_python.py
	@# A .venv without pip is the rest of an attempt that failed half-way: begin again.
	@test -x $(BIN)/pip || $(PYTHON) -m venv --clear $(VENV)
	@echo "Installing the locked packages into $(VENV) (half a minute the first time) ..."
	@$(PIP) install --quiet --require-hashes -r requirements/test.txt
	@$(PIP) install --quiet --no-build-isolation --no-deps --editable .
	@touch $@

$(VENV)/.stamp-lint: requirements/lint.txt $(VENV)/.stamp-test
	@$(PIP) install --quiet --require-hashes -r requirements/lint.txt
	@touch $@

$(VENV)/.stamp-docs: requirements/docs.txt $(VENV)/.stamp-test
	@$(PIP) install --quiet --require-hashes -r requirements/docs.txt
	@touch $@
