"""The pxe-filter role: of all hosts that can boot a network's machines, exactly one has its filter open.

Imports no other role; the backends implement ``contracts.pxe_filter``.
"""
