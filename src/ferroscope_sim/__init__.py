"""The simulated fleet: machines with BMCs and ramdisks, in a separate process or thread.

It knows the service only through its APIs; the service reaches the BMCs with the driver ``bmc.sim``.
"""
