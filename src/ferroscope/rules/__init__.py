"""Inspection rules: actions on a node if its inspection data matches conditions.

Rules read and change the copies that they are given, and have no external effects. This package has the semantics of
conditions, actions, placeholders and paths in both dialects, and the active rules (``builtin``); not HTTP, storage or
the worker.
"""
