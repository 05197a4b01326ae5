"""A database server in the memory of the simulation, spoken to through the Python DB-API.

``text`` parses the SQL that SQLAlchemy renders, ``planner`` turns it into a ``plan``, and its ``expressions`` into
functions. ``storage`` keeps versions of rows, ``server`` has sessions, row locks, snapshots, time-outs and
fail-over. ``driver`` is the DB-API module, ``dialects`` lets SQLAlchemy use it. Everything above is the product's
own code.
"""
