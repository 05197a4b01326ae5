"""Composition of the service, and the life of its processes: start, signals, stop."""
