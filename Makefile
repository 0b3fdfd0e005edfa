# Everything that people and CI run. `make help` lists it.
SHELL := /bin/bash
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
IMAGE ?= asyncop:dev
# Compiled Kubernetes parts, the image's base and built images live here, outside of the checkout.
CACHE := $(or $(ASYNCOP_TESTBED_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/asyncop-testbed)

# Minutes each, and best on a machine that does nothing else.
CHAOS := tests/e2e/test_replicas.py tests/e2e/test_replicas_in_cluster.py tests/e2e/test_nothing_lost.py \
  tests/cases/test_leading.py tests/cases/test_memory.py tests/cases/test_probes.py

.DEFAULT_GOAL := help
.PHONY: help venv demo test check format unit contract e2e helm image soak bench lock clean

help: ## List the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

$(VENV)/.ready: requirements-dev.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --require-hashes -r requirements-dev.txt
	$(BIN)/pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@

venv: $(VENV)/.ready ## The environment of development, in .venv

demo: ## A StatefulSet's Pod comes back from a dead node, on a real cluster made here (root, Go; KEEP=1: it stays)
	$(PYTHON) -m tests.testbed.demo $(if $(KEEP),--keep)

test: check unit ## Everything that CI runs
	@echo "contract, helm and e2e: two at a time, since they mostly wait; each tells all when it has ended (minutes)"
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target contract helm e2e

check: venv ## Format, lint, types, layers, locks and generated files
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports
	$(BIN)/python -m tests.lock --check
	$(BIN)/python -m tests.helm.readme --check

format: venv ## Mend format and what the linter can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

unit: venv ## Fast tests without a cluster
	$(BIN)/pytest tests/unit tests/examples -m "not control_plane and not cluster"

contract: venv ## Tests against a real etcd and kube-apiserver
	$(BIN)/pytest tests/contract tests/cases tests/examples $(CHAOS:%=--ignore=%)

helm: venv ## Tests of the chart
	$(BIN)/pytest tests/helm

e2e: venv ## Tests on a real two-node cluster, with the image and the chart
	$(BIN)/pytest tests/e2e $(CHAOS:%=--ignore=%)

image: ## Build the image (buildah; makes the base itself where no registry is reachable)
	$(PYTHON) -m tests.testbed.image_build --tag $(IMAGE) --output $(CACHE)/asyncop.tar

soak: venv ## Replicas killed, cut off and starved on a real cluster, then 2,000 fresh random seeds (half an hour)
	$(BIN)/pytest $(CHAOS)
	$(BIN)/python -m tests.cases.convergence 2000

bench: venv ## asyncop beside the floors on the same 20,000 Pods
	$(BIN)/python -m tests.bench

lock: venv ## Renew the hash-pinned locks
	$(BIN)/python -m tests.lock

clean: ## Remove what was made in the checkout
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
