"""The Bmc port over IPMI, with ipmitool."""
