"""The api role: two HTTP APIs over the same state, from one table of routes.

It validates, looks up, writes state and request in one transaction, and answers; it never does
the work itself, never speaks to a BMC and never knows a database. ``app.create_app`` builds it.
"""
