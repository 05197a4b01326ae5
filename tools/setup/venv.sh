# shellcheck shell=bash
# .venv with Ferroscope and all its extras, as requirements.txt says.
make_venv .venv
# One for development has all of it.
[ -e "$(stamp .venv "client/pyproject.toml pyproject.toml constraints.txt" dev)" ] ||
    install .venv "client/pyproject.toml pyproject.toml requirements.txt" requirements.txt user own
