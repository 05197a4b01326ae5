"""The store and the queue on SQLAlchemy Core, for SQLite, PostgreSQL, MariaDB and MySQL.

Callers import from here; the repositories of a transaction are in a file each.
"""

from ferroscope.db.queue import POLL_SECONDS as POLL_SECONDS
from ferroscope.db.queue import Queue as Queue
from ferroscope.db.store import Store as Store
from ferroscope.db.transaction import Fence as Fence
from ferroscope.db.transaction import Transaction as Transaction
