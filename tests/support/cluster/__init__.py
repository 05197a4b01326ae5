"""A whole installation into which faults are injected while it works: real processes, real servers, real signals.

Everything runs on 127.0.0.1 and in separate network namespaces, and is removed at the end.
"""
