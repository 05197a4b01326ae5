"""The role pxe-filter: of all hosts that can boot a network's machines, one has its gate open.

Imports no other role and no adapter; a gate's mechanism comes through ``ports.gate``.
"""
