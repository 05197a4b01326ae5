"""The Bmc port without a BMC: commands succeed at once, and the stored node is the truth."""
