"""What goes wrong in a statement, before it is spelled as PostgreSQL or MariaDB spell it."""

from __future__ import annotations

from typing import Any, Literal

Kind = Literal["unique", "deadlock", "lock timeout", "serialization", "aborted", "idle", "gone"]


class SqlError(Exception):
    """``detail`` is the constraint of a unique violation, ``place`` which statement of its message failed."""

    def __init__(self, kind: Kind, detail: str = "", value: str = "") -> None:
        self.kind = kind
        self.detail = detail
        self.value = value
        self.place = 0
        super().__init__(f"{kind} {detail}".strip())


class BlockedError(Exception):
    """The statement has to wait until ``holder``, another transaction, has ended."""

    def __init__(self, holder: Any, what: str) -> None:
        self.holder = holder
        self.what = what
        super().__init__(what)
