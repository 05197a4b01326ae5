"""Fields of ``driver_info`` that a driver does not read: probably misspelled. Pure.

They are stored, as in the Bare Metal service, because other programs may read them. But an operator should learn of a
misspelled password before the BMC does.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable
from typing import Final

# Not the driver's own: a machine that calls is found by any address in a field like this.
_OF_LOOKUPS: Final = "_bmc_address"
_MIN_SIMILARITY: Final = 0.8
_MAX_NOTES: Final = 5


def note_unknown(names: Iterable[str], read_names: Collection[str]) -> str | None:
    """Return a note on names that are not in ``read_names`` but look similar; None if there are none."""
    prefixes = {name.partition("_")[0] for name in read_names if "_" in name}
    notes = []
    for name in sorted(name for name in set(names) - set(read_names) if not name.endswith(_OF_LOOKUPS)):
        close = difflib.get_close_matches(name[:64], sorted(read_names), n=1, cutoff=_MIN_SIMILARITY)
        if close:
            notes.append(f"{name[:64]} (did you mean {close[0]}?)")
        elif name.partition("_")[0] in prefixes:
            notes.append(name[:64])
    more = f" and {len(notes) - _MAX_NOTES} more" if len(notes) > _MAX_NOTES else ""
    return f"the driver does not read {', '.join(notes[:_MAX_NOTES])}{more}" if notes else None
