# shellcheck shell=bash
# .inspector-venv with ironic-inspector, whose database the tests import.
locked_venv inspector tests/support/inspector/inspector-constraints.txt
