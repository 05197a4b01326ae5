"""The simulated fleet: machines with BMCs and ramdisks, in a process or a thread of its own.

It knows the service only from outside, by its APIs; the service reaches its BMCs through ``bmc.sim``.
"""
