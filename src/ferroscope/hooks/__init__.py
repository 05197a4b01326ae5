"""Hooks: how inspection data changes a node. One hook per file, run in order by ``pipeline``.

A hook works only on the task's copies and on plugin data; it performs no I/O, does not import the worker, and never
changes the inventory. Plugins build on ``base``.
"""
