"""What inspection data does to a node: one hook per file, run in order by ``pipeline``.

A hook works on the task's copies and on plugin data only; it never performs I/O of its own,
never imports the worker, and never changes the inventory. ``base`` is what a plugin builds on.
"""
