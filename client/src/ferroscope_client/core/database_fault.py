"""Why the database cannot be used; each kind has its own remedy."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec


class DatabaseFault(StrEnum):
    """Why the database cannot be used, or not be written."""

    FULL = "full"
    READ_ONLY = "read-only"
    LOCKED = "locked"
    REFUSED = "refused"
    UNAVAILABLE = "unavailable"

    @property
    def summary(self) -> str:
        """What the fault is, without a period."""
        return _DATABASE_FAULTS[self][0]

    @property
    def advice(self) -> str:
        """What to do about it, without a period."""
        return _DATABASE_FAULTS[self][1]


# Codes of the service's problems.
DATABASE_CODES: Final = {fault: f"database-{fault}" for fault in DatabaseFault}


class DatabaseFailure(msgspec.Struct, frozen=True):
    """Why the database could not be used, in its words too."""

    fault: DatabaseFault
    message: str


_DATABASE_FAULTS: Final = {
    DatabaseFault.FULL: ("the database has no room left", "make room on its disk"),
    DatabaseFault.READ_ONLY: (
        "the database is read-only",
        "make it writable; a standby is not: connect to the primary",
    ),
    DatabaseFault.LOCKED: ("another program has locked the database", "end the program that holds the lock"),
    DatabaseFault.REFUSED: (
        "the database refuses connections",
        "start the database server, or correct [database] connection",
    ),
    DatabaseFault.UNAVAILABLE: (
        "the database is unavailable",
        "check the database server, its disk and the network to it",
    ),
}
