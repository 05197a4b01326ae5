"""Periodic tasks: work that no caller requests.

Old inspections are deleted and data is moved here; work on a node is queued as a request for a worker.
"""
