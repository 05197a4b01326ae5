# shellcheck shell=bash
# .clients-venv with the OpenStack clients, and what ironic-python-agent calls to inspect this machine.
locked_venv clients tests/system/clients/clients-constraints.txt
programs lshw:lshw dmidecode:dmidecode lspci:pciutils ethtool:ethtool udevadm:udev
