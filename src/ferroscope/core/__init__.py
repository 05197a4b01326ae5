"""What Ferroscope decides, without doing it: states, the machine, lookup, reasons.

Nothing here performs I/O, reads a clock or logs; it imports the standard library and msgspec only.
"""
