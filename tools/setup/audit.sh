# shellcheck shell=bash
# .audit-venv with the tools that list packages and their known vulnerabilities, and check what is published.
locked_venv audit tools/audit-constraints.txt
