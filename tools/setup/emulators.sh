# shellcheck shell=bash
# .emulators-venv with the BMC emulators, and ipmi_sim, ipmitool and what looks into their media.
locked_venv emulators tests/support/emulators/emulators-constraints.txt
programs ipmi_sim:openipmi ipmitool:ipmitool openssl:openssl mtype:mtools
