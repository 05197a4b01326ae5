"""The store and the queue on SQLAlchemy Core, for SQLite, PostgreSQL, MariaDB and MySQL.

Callers import from here; the repositories of a transaction are in a file each.
"""

from ferroscope.db.errors import described as described
from ferroscope.db.location import left_behind as left_behind
from ferroscope.db.location import place as place
from ferroscope.db.location import refuse_others as refuse_others
from ferroscope.db.queue import POLL_SECONDS as POLL_SECONDS
from ferroscope.db.queue import Queue as Queue
from ferroscope.db.store import Store as Store
from ferroscope.db.transaction import Fence as Fence
from ferroscope.db.transaction import Transaction as Transaction
from ferroscope.db.url import DatabaseUrlError as DatabaseUrlError
from ferroscope.db.url import parse_url as parse_url
