"""What speaking with the API takes, for its clients and the service alike: values, states, reasons, advice.

Nothing here performs I/O but reading a file; it imports only the standard library and msgspec.
"""
