"""A database server in the memory of the simulation, spoken to through the Python DB-API.

``text`` parses the SQL that SQLAlchemy renders; ``planner`` turns it into a ``plan``, and its ``expressions`` into
functions. ``storage`` keeps versions of rows, ``commits`` their order and what a fail-over takes back of it.

``server`` takes the messages of its clients' ``sessions``. ``statements`` is the course of a statement, ``snapshots``
what it sees, ``executor`` what its plan does under ``locks`` and ``constraints``; ``transactions`` begin and end.
``driver`` is the DB-API module, ``dialects`` lets SQLAlchemy use it. Everything above is the product's own code.
"""
