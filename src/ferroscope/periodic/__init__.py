"""Periodic tasks: what has to happen without anybody asking for it.

Old inspections are deleted and data moved here; what concerns a node is put on the queue as a request,
which a worker carries out.
"""
