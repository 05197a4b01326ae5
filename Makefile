# Everything that is done with this tree, from a fresh Debian 12 with python3.11, git and make on.

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: compare help setup dev servers pxe clients emulators swift prepared test test-all lint format bench chaos chaos-pxe fuzz demo demo-pxe docs lock clean

# Words for pytest, such as: make test TESTS="tests/unit -k lookup"
TESTS ?=
# How many tests run at once: more than there are processors, for tests wait more than they compute.
JOBS ?= $(shell expr 2 '*' $$(nproc))
PYTEST := .venv/bin/python -m pytest --numprocesses $(JOBS) --dist worksteal
# Words for chaos, such as: make chaos CHAOS="--database mariadb --seed 7 --minutes 5"
CHAOS ?= --database postgresql --seed 1 --minutes 30
# Words for fuzz, such as: make fuzz FUZZ="--callbacks 100000 --seed 7 --database postgresql"
FUZZ ?= --callbacks 1000000
# Words for chaos-pxe, such as: make chaos-pxe PXE_CHAOS="--database mariadb --seed 7 --minutes 5"
PXE_CHAOS ?= --database postgresql --seed 1 --minutes 60

help: ## Show what there is
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 16

setup: ## Install Ferroscope into .venv
	@tools/setup.sh venv

dev: ## Install Ferroscope into .venv, and what checks and tests it
	@tools/setup.sh dev

servers: ## Install PostgreSQL, MariaDB and HAProxy for the tests, where they are missing; starts nothing
	@tools/setup.sh servers

pxe: ## Install what boot hosts and virtual machines in namespaces need, where it is missing; starts nothing
	@tools/setup.sh pxe

clients: ## Install the published clients that the acceptance tests drive into .clients-venv
	@tools/setup.sh clients

swift: ## Install OpenStack Swift and Keystone, which the tests of object stores talk to, into .swift-venv
	@tools/setup.sh swift

emulators: ## Install the BMC emulators that the driver tests speak to into .emulators-venv
	@tools/setup.sh emulators

test: prepared ## Check style, types and imports, then each behaviour once: in some minutes
	@$(PYTEST) -m "not exhaustive" $(TESTS)

test-all: test ## Check everything: the same, then the rest on all databases, and the campaigns; half an hour, needs root
	@$(PYTEST) -m exhaustive $(TESTS)
	@.venv/bin/python -m tests.simulation --seeds 400 --first 1000
	@.venv/bin/python -m tests.simulation --seeds 100 --first 1000 --pxe-filters
	@.venv/bin/python -m tests.cluster.chaos --database postgresql --minutes 3
	@.venv/bin/python -m tests.cluster.chaos --database mariadb --minutes 3
	@.venv/bin/python -m tests.pxe.chaos --profile fast --minutes 4
	@.venv/bin/python -m tests.fuzz --callbacks 60000 --seed 2 --database postgresql

prepared: dev servers pxe clients emulators swift lint

lint: dev ## Check style, types and imports
	@.venv/bin/ruff check
	@.venv/bin/ruff format --check
	@.venv/bin/mypy
	@.venv/bin/lint-imports --no-logo

format: dev ## Bring the source into the one form
	@.venv/bin/ruff check --fix
	@.venv/bin/ruff format

bench: dev servers ## Measure against the figures to reach
	@.venv/bin/python -m bench

chaos: dev servers ## Kill, freeze and cut off processes for half an hour; count what was lost or done twice
	@.venv/bin/python -m tests.cluster.chaos $(CHAOS)

chaos-pxe: dev servers pxe ## Kill, freeze and cut off the open PXE filter for an hour; count two open ones (needs root)
	@.venv/bin/python -m tests.pxe.chaos $(PXE_CHAOS)

fuzz: dev servers ## Send a million mutilated callbacks to a service of its own; nothing may break, stick or grow
	@.venv/bin/python -m tests.fuzz $(FUZZ)

compare: dev ## Run the golden corpus through the hooks of the published Ironic, and explain each difference
	@.venv/bin/python tools/compare_with_ironic.py

demo: setup ## Inspect a simulated fleet of 50, and lose a worker at work
	@.venv/bin/ferroscope demo

demo-pxe: dev pxe ## Boot two virtual machines through the open one of three PXE filters, and lose that filter (needs root)
	@.venv/bin/python -m tests.pxe.demo

docs: setup ## Generate the reference pages anew
	@.venv/bin/python -m tools.docs

lock: setup ## Pin the newest versions of all packages, in constraints.txt and for the clients
	@.venv/bin/python tools/lock.py

clean: ## Remove environments and caches
	@rm -rf .venv .clients-venv .emulators-venv .swift-venv .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .boot-kernel
