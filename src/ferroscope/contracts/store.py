"""What the callers of the store pass to it and get from it: a page of a list, and statistics; see ``db.store``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from ferroscope.core.node import STORED


class Ended(msgspec.Struct, frozen=True):
    """How many inspections finished and how many failed within an interval."""

    finished: int
    failed: int


class OldRows(msgspec.Struct, frozen=True):
    """The keys of the rows to delete on one page of a table; ``after``: where the next page begins.

    ``is_last``: no page follows now. However many rows are kept, reading a page takes as long.
    """

    keys: Sequence[str]
    after: object
    is_last: bool


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """A page of a list: filters, order and start.

    ``filters`` maps a field to a value, or to a tuple of alternatives; ``before`` maps a field to an exclusive upper
    limit. ``project`` limits nodes, or ports of nodes, to those that may belong to this project as owner or lessee, and
    ``attributes`` limits nodes to those that may have these texts in ``Node.attributes``, and ``present`` to those that
    may have anything there by these names; for certainty look at the nodes. ``fields``: only these are read, and the
    others have their defaults; None: all. ``marker`` is the UUID of the previous
    page's last item; an unknown one raises ``NotFoundError``. Items are ordered by ``sort_key``, then by UUID, so that
    pagination is stable.
    """

    filters: Mapping[str, object] = {}
    before: dict[str, float] = {}
    project: str | None = None
    attributes: dict[str, str] = {}
    present: tuple[str, ...] = ()
    fields: frozenset[str] | None = None
    limit: int | None = None
    marker: str | None = None
    sort_key: str = "created_at"
    descending: bool = False


HARDWARE: Final = {
    "model": False, "serial": False, "cpu": False, "memory": True, "storage": True, "nics": True,
}  # fmt: skip
"""What the summary of a node's hardware has to sort by, the model with its vendor; True: a number."""
SORTS: Final = frozenset(field.name for field in STORED if field.sorts) | HARDWARE.keys()
"""By what ``db.ranking`` sorts nodes."""


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """What the nodes of an owner take; ``ports`` includes port groups, ``bytes`` also inspection data."""

    nodes: int = 0
    ports: int = 0
    bytes: int = 0
