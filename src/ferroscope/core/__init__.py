"""Decisions without effects: states, delivery, lookup, reasons.

Nothing here performs I/O, reads a clock or logs; it imports only the standard library and msgspec.
"""
