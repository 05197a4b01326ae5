# Commands for contributors. They need only Debian 12 with python3.11, git and make.

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: audit test-nautobot nautobot test-netbox netbox sbom compare help setup dev servers browser kubernetes pxe clients emulators swift ironic inspector ansible site-tools site prepared test test-exhaustive test-all campaigns test-kubernetes test-packages packaging dist image deb chart helm lint format bench chaos chaos-pxe chaos-kubernetes fuzz demo demo-pxe demo-cloud demo-kubernetes docs screenshots lock clean

# With bytecode, a process of the service starts with two thirds of the processor time.
unexport PYTHONDONTWRITEBYTECODE

# Arguments for pytest, such as: make test TESTS="tests/unit -k lookup"
TESTS ?=
# Parallel test processes: more than processors, because many tests wait.
JOBS ?= $(shell expr 3 '*' $$(nproc))
PYTEST = .venv/bin/python -m pytest --numprocesses $(JOBS)
# Tests that have a target of their own.
ELSEWHERE := not campaign and not kubernetes and not packages and not nautobot and not netbox
# Arguments for chaos, such as: make chaos CHAOS="--database mariadb --seed 7 --minutes 5"
CHAOS ?= --database postgresql --seed 1 --minutes 30
# Arguments for fuzz, such as: make fuzz FUZZ="--callbacks 100000 --seed 7 --database postgresql"
FUZZ ?= --callbacks 1000000
# Arguments for chaos-pxe, such as: make chaos-pxe PXE_CHAOS="--database mariadb --seed 7 --minutes 5"
PXE_CHAOS ?= --database postgresql --seed 1 --minutes 60

help: ## Show this help
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 24

setup: ## Install Ferroscope into .venv
	@tools/setup.sh venv

dev: ## Install Ferroscope into .venv, with the tools for checks and tests
	@tools/setup.sh dev

servers: ## Install PostgreSQL, MariaDB, RabbitMQ and HAProxy for the tests, if missing; starts nothing
	@tools/setup.sh servers

browser: ## Install Chromium for the tests and the pictures of the web page, if missing
	@tools/setup.sh browser

pxe: ## Install the packages for simulated boot hosts and virtual machines, if missing; starts nothing
	@tools/setup.sh pxe

kubernetes: ## Build a Kubernetes control plane and hollow nodes for the tests into ~/.cache/ferroscope, if missing: 15 minutes, once
	@tools/setup.sh kubernetes

helm: ## Fetch Helm, and a newer kubectl than Debian's, into .helm, if missing
	@tools/setup.sh helm

packaging: ## Install the tools that make and run the image and the Debian package, if missing
	@tools/setup.sh packaging

clients: ## Install the OpenStack clients for the acceptance tests into .clients-venv
	@tools/setup.sh clients

swift: ## Install OpenStack Swift and Keystone for the object store tests into .swift-venv
	@tools/setup.sh swift

ironic: ## Install OpenStack Ironic for the tests of an attached one into .ironic-venv
	@tools/setup.sh ironic

inspector: ## Install ironic-inspector, whose database the tests import, into .inspector-venv
	@tools/setup.sh inspector

nautobot: ## Install Nautobot for the test of the sync into .nautobot-venv
	@tools/setup.sh nautobot

netbox: ## Install NetBox for the test of the sync into .netbox-venv (needs Python 3.12 or newer)
	@tools/setup.sh netbox

ansible: ## Install ansible-core for the test of the inventory into .ansible-venv
	@tools/setup.sh ansible

emulators: ## Install the BMC emulators for the driver tests into .emulators-venv
	@tools/setup.sh emulators

test: prepared ## Check style, types and imports, and run the tests, each behavior once
	@FERROSCOPE_TESTS_FORK=yes $(PYTEST) --dist loadfile --no-loadscope-reorder -m "not exhaustive and $(ELSEWHERE)" $(TESTS)

# They load the machine, each by itself.
test-exhaustive: JOBS = $(shell nproc)
test-exhaustive: prepared ## Run what make test leaves out: the other databases, longer tests, more seeds of the simulation (needs root)
	@$(PYTEST) --dist worksteal -m "exhaustive and $(ELSEWHERE)" $(TESTS)
	@FERROSCOPE_FUZZ=5 .venv/bin/python -m pytest -q tests/unit/hooks/test_hook_fuzz.py
	@.venv/bin/python -m tests.simulation --seeds 400 --first 1000
	@.venv/bin/python -m tests.simulation --seeds 100 --first 1000 --pxe-filters

campaigns: prepared ## Kill, freeze, cut off and fuzz everything for some minutes each, an hour in total; needs root
	@.venv/bin/python -m tests.cluster.chaos --database postgresql --minutes 2
	@.venv/bin/python -m tests.cluster.chaos --database mariadb --minutes 2
	@.venv/bin/python -m tests.cluster.bus_chaos --minutes 2
	@.venv/bin/python -m tests.pxe.chaos --profile fast --minutes 3
	@.venv/bin/python -m tests.fuzz --callbacks 30000 --seed 2 --database postgresql
	@.venv/bin/python -m pytest -m campaign

test-all: test test-exhaustive campaigns ## Run all tests that need no cluster, image or Nautobot, and the campaigns (needs root)

test-kubernetes: dev servers kubernetes helm ## Run the tests on a private Kubernetes cluster, which make test does not run
	@.venv/bin/python -m pytest --numprocesses 2 --dist loadfile $(if $(TESTS),$(TESTS),tests/kubernetes)

test-packages: dev packaging ## Make the image and the packages, and try them, which make test does not do (needs root)
	@.venv/bin/python -m pytest $(if $(TESTS),$(TESTS),tests/packages)

test-nautobot: dev servers nautobot ## Sync with a real Nautobot
	@.venv/bin/python -m pytest -m nautobot $(TESTS)

test-netbox: dev servers netbox ## Sync with a real NetBox, whose schema takes some minutes to make, once
	@.venv/bin/python -m pytest -m netbox $(TESTS)

image: dev packaging ## Write an OCI image to build/, made of Debian's packages (needs root)
	@.venv/bin/python -m tools.packaging image

dist: dev ## Write the source distribution and the wheel to dist/, with man pages and shell completion
	@.venv/bin/python -m tools.packaging dist

deb: dev packaging ## Write a Debian package to build/
	@.venv/bin/python -m tools.packaging deb

chart: helm ## Write the Helm chart to build/
	@.helm/helm package deploy/helm/ferroscope --destination build

prepared: dev servers browser pxe clients emulators swift ironic inspector ansible site-tools lint

lint: dev ## Check style, types and imports
	@.venv/bin/ruff check
	@.venv/bin/ruff format --check
	@.venv/bin/mypy
	@.venv/bin/lint-imports --no-logo

format: dev ## Format the source and fix its style
	@.venv/bin/ruff check --fix
	@.venv/bin/ruff format

bench: dev servers ## Measure against the performance targets
	@.venv/bin/python -m bench

chaos: dev servers ## Kill, freeze and cut off processes for half an hour; count lost and repeated work
	@.venv/bin/python -m tests.cluster.chaos $(CHAOS)

chaos-pxe: dev servers pxe ## Kill, freeze and cut off the open PXE filter for an hour; check that two are never open (needs root)
	@.venv/bin/python -m tests.pxe.chaos $(PXE_CHAOS)

chaos-kubernetes: dev servers kubernetes ## Let nodes, BMCs, the API server and leaders of a Kubernetes cluster fail for half an hour; nothing may run twice
	@.venv/bin/python -m tests.kubernetes.chaos $(KUBERNETES_CHAOS)

fuzz: dev servers ## Send a million mutated callbacks to a separate service; check for errors, stuck nodes and memory growth
	@.venv/bin/python -m tests.fuzz $(FUZZ)

compare: dev ## Run the golden corpus through the hooks of the published Ironic, and check that each difference is documented
	@.venv/bin/python tools/compare_with_ironic.py

demo: setup ## Inspect 50 simulated machines, and kill a worker meanwhile
	@.venv/bin/ferroscope demo

demo-pxe: dev pxe ## Boot two virtual machines through the open one of three PXE filters, and kill that filter (needs root)
	@.venv/bin/python -m tests.pxe.demo

demo-cloud: dev servers pxe swift ironic ## Kill one part of each kind of a cloud with a real Ironic, while 100 nodes are inspected (needs root)
	@.venv/bin/python -m tests.cloud.demo

demo-kubernetes: dev servers kubernetes ## Let one of three Kubernetes nodes die: its StatefulSet's pod comes back, with proof
	@.venv/bin/python -m tests.kubernetes.demo

docs: setup ## Regenerate the reference pages and the dashboards
	@.venv/bin/python -m tools.docs
	@.venv/bin/python -m tools.dashboards

site-tools:
	@tools/setup.sh site

site: site-tools ## Write the documentation as a web site to build/site, which needs no network; broken links are errors
	@.site-venv/bin/sphinx-build -q -W --keep-going -c tools/site docs build/site
	@echo "open build/site/index.html"

screenshots: dev browser ## Make the pictures of the web page in docs/images
	@.venv/bin/python -m tools.screenshots

lock: setup netbox ## Pin the latest versions of all packages, with hashes; LOCK=--keep keeps the versions and renews the hashes
	@.venv/bin/python -m tools.lock $(LOCK)

sbom: ## Write build/ferroscope.cdx.json: the packages of an installation in CycloneDX format
	@tools/setup.sh audit
	@mkdir -p build
	@PYTHONWARNINGS=ignore .audit-venv/bin/cyclonedx-py requirements --pyproject pyproject.toml --output-reproducible --output-format JSON -o build/ferroscope.cdx.json requirements.txt
	@echo "wrote build/ferroscope.cdx.json"

audit: ## Compare the packages of an installation with the published advisories; exit code 1: some apply, 3: not checked
	@tools/setup.sh audit
	@python3 tools/audit.py

clean: ## Remove environments and caches
	@rm -rf .venv .clients-venv .emulators-venv .swift-venv .ironic-venv .inspector-venv .ansible-venv .nautobot-venv .netbox-venv .site-venv .audit-venv .helm .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .boot-kernel
