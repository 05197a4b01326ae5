"""Periodic tasks: work that no caller requests.

They delete old inspections and move data. Work on a node is queued as a request for a worker.
"""
