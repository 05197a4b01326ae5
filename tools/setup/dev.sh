# shellcheck shell=bash
# .venv with Ferroscope and all its extras, and the tools for checks and tests, as constraints.txt says.
make_venv .venv
install .venv "client/pyproject.toml pyproject.toml constraints.txt" constraints.txt dev own
