"""The BMC driver for the machines of the simulated fleet."""
