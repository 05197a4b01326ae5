# shellcheck shell=bash
# .ironic-venv with OpenStack Ironic, to which the tests attach Ferroscope.
locked_venv ironic tests/support/ironic/ironic-constraints.txt
