"""The pxe-filter role: exactly one of the hosts that can boot a network's machines has its filter open.

Imports no other role; the backends implement ``contracts.plugins``.
"""
