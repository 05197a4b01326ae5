"""Inspection rules: what an operator wants done with a node where its inspection data look so and so.

It reads and changes the copies that it is given, and has no effect outside. Belongs here: what conditions,
actions, placeholders and paths mean, in both dialects, and which rules are in force (``builtin``).
Not here: HTTP, storage, the worker.
"""
