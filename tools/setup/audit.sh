# shellcheck shell=bash
# .audit-venv with the tools that list packages and their known vulnerabilities.
locked_venv audit tools/audit-constraints.txt
