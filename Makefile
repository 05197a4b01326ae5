# What contributors call every day; for the rest: python3 -m tools. They need Debian 12 with python3.11, git and make.

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help check test nightly format docs demo bench bench-gate release clean

# With bytecode, a process of the service starts with two thirds of the processor time.
unexport PYTHONDONTWRITEBYTECODE

# Arguments for pytest, such as: make test TESTS="tests/fast -k lookup". Only what these tests need is set up.
TESTS ?=
# Parts of the nightly tests, such as: make nightly PART=kubernetes. Without it, all of them, in hours.
PART ?=
# The GnuPG key that signs a release.
KEY ?=

help: ## Show this help
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20
	@echo "  python3 -m tools    Show what is needed now and then: pictures, images, packages, locks, chaos"

check: ## Check style, types and imports, and run the quick tests, in 2 minutes of processor time, without root or servers
	@python3 -m tools.tests check

test: ## The same, and the tests of the store, the API and each role, in 8 minutes of processor time
	@python3 -m tools.tests test --only='$(TESTS)'

nightly: ## Run all other tests, in parts of up to half an hour each (needs root)
	@python3 -m tools.tests nightly $(PART)

format: ## Format the source and fix its style
	@tools/setup.sh dev
	@.venv/bin/ruff check --fix
	@.venv/bin/ruff format

docs: ## Regenerate the reference pages and the dashboards
	@tools/setup.sh venv
	@.venv/bin/python -m tools.docs
	@.venv/bin/python -m tools.dashboards

demo: ## Inspect 50 simulated machines, and kill a worker meanwhile
	@tools/setup.sh venv
	@.venv/bin/ferroscope demo

bench: ## Measure against the performance targets
	@tools/setup.sh dev postgresql mariadb
	@.venv/bin/python -m bench

bench-gate: ## Fail if an inspection needs more instructions than before
	@tools/setup.sh dev
	@.venv/bin/python -m bench gate

release: ## Make and check all that a release is published with, in dist/; KEY=... signs it (needs root)
	@tools/setup.sh dev
	@.venv/bin/python -m tools.packaging release $(if $(KEY),--sign '$(KEY)')

clean: ## Remove environments and caches
	@rm -rf .venv .*-venv .helm .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .boot-kernel build
