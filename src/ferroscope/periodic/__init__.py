"""Periodic tasks: what has to happen without anybody asking for it.

Each only puts requests on the queue; workers carry them out.
"""
