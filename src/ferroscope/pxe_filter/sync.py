"""Reads the known MACs from the store as changes to the filter's sets: once completely, then incrementally.

An entry in the list of changes only says that a MAC must be read again. Its current state is read in the same
transaction, so neither the order of changes nor repeated entries matter.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

from ferroscope.contracts.store import Store, Transaction
from ferroscope.core.boot_macs import HORIZON, ChangeWindow, KnownMac, MacChange, MacSets, SetChange, SortedMacs, number

_PAGE: Final = 2000
_NAMES: Final = 500


def _nothing() -> None: ...


class MacSync:
    """``sets`` are as of the last read; both methods raise ``StoreUnavailableError``."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.sets = MacSets()
        self.window = ChangeWindow()

    def whole(self, alive: Callable[[], None] = _nothing) -> SetChange:
        """Read everything; return the difference to the sets known before. ``alive`` is called for each page."""
        window, allowed, denied = self._store.read(partial(_everything, alive))
        self.window = window
        return self.sets.replace(allowed, denied)

    def changes(self, alive: Callable[[], None] = _nothing) -> Iterator[SetChange]:
        """Read the changes since the last read, page by page; ``alive`` is called for each page."""
        start = self.window.low
        while True:
            alive()
            now, page, known = self._store.read(partial(self._look, start))
            change = self.sets.look(self.window.take(page, now), known)
            if change:
                yield change
            if len(page) < _PAGE:
                return
            start = page[-1].seq

    def _look(self, start: int, tx: Transaction) -> tuple[float, Sequence[MacChange], list[KnownMac]]:
        page = tx.macs.since(start, _PAGE)
        macs = sorted({change.mac for change in page if self.window.is_new(change)})
        return tx.now, page, [one for names in _chunks(macs) for one in tx.macs.known(macs=names)]


def _everything(alive: Callable[[], None], tx: Transaction) -> tuple[ChangeWindow, SortedMacs, SortedMacs]:
    window = ChangeWindow(tx.macs.newest(before=tx.now - HORIZON))
    low = window.low
    while changes := tx.macs.since(low, _PAGE):
        window.take(changes, tx.now)
        low = changes[-1].seq
        alive()
    allowed, denied = array("Q"), array("Q")
    for page in _pages(tx):
        alive()
        for one in page:
            mac = number(one.mac)
            if mac is not None:
                (allowed if one.booting else denied).append(mac)
    return window, SortedMacs(allowed), SortedMacs(denied)


def _pages(tx: Transaction) -> Iterator[Sequence[KnownMac]]:
    after = ""
    while page := tx.macs.known(after=after, limit=_PAGE):
        yield page
        after = page[-1].mac


def _chunks(macs: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(macs), _NAMES):
        yield macs[start : start + _NAMES]
