"""A whole installation, to which harm is done while it works: real processes, real servers, real signals.

Everything runs on 127.0.0.1 and in network namespaces of its own, and is gone at the end.
"""
