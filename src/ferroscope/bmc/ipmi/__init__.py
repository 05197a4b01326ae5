"""The BMC driver for IPMI, based on ipmitool."""
