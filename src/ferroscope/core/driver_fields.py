"""Fields of ``driver_info`` that a driver does not read: probably misspelt. Pure.

They are stored, as the Bare Metal service does, because others may read them; but whoever misspells a password should
hear of it before the BMC does.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable
from typing import Final

# Not the driver's: by such an address, as by each that a field has, a machine that calls is found.
_OF_LOOKUPS: Final = "_bmc_address"
_MIN_SIMILARITY: Final = 0.8
_MAX_NOTES: Final = 5


def note_unknown(names: Iterable[str], read_names: Collection[str]) -> str | None:
    """Return a note on names that are not in ``read_names`` but look as if they should be; None if none is."""
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
