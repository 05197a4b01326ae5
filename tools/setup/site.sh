# shellcheck shell=bash
# .site-venv with Sphinx, which makes the documentation site.
locked_venv site tools/site/site-constraints.txt
