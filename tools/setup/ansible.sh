# shellcheck shell=bash
# .ansible-venv with ansible-core, which reads the inventory of 'ferroscope export'.
locked_venv ansible tests/support/ansible/ansible-constraints.txt
