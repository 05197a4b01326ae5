"""The role pxe-filter: of all hosts that can boot a network's machines, one has its filter open.

Imports no other role and no adapter; a PXE filter's mechanism comes through ``ports.filter``.
"""
