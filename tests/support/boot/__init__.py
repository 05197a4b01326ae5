"""Machines that really boot: QEMU under a libvirt of their own, power and media by a Redfish BMC, our boot hosts."""
