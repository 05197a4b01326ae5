"""The Bmc port for the machines of the simulated fleet, over the simulator's protocol."""
