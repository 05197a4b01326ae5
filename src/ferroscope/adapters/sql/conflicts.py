"""What it means that a row could not be written because another one has its name, address or UUID."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Table
from sqlalchemy.exc import IntegrityError

from ferroscope.adapters.sql.dialect import violated_constraint
from ferroscope.contracts.errors import ConflictError


def conflict(error: IntegrityError, row: dict[str, Any], table: Table) -> Exception:
    """Return the ``ConflictError`` that a unique constraint's violation means."""
    violated = violated_constraint(error)
    for column in table.columns:
        if violated in (f"uq_{table.name}_{column.name}", f"{table.name}.{column.name}"):
            return ConflictError(column.name, str(row[column.name]))
    if violated in ("PRIMARY", f"pk_{table.name}"):
        return ConflictError("uuid", str(row["uuid"]))
    return error
