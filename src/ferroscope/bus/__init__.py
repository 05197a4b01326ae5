"""Tells waiting threads and processes about changes: the implementations of ``contracts.store.Bus``."""
