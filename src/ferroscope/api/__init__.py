"""The api role: two HTTP APIs on the same state, defined by one table of routes.

It validates, looks up, writes state and request in one transaction, and responds. It never does the work itself, never
connects to a BMC, and is independent of the database. ``routes.create_app`` builds it.
"""
