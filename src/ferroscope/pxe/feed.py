"""What the store says about MACs, as changes of the gate's sets: all of it once, then what is new.

A number in the list of changes says "look at this MAC again"; what holds for it is read in the
same transaction, so the order of changes, and how often one is told, do not matter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from ferroscope.domain.gate import HORIZON, ChangeWindow, KnownMac, MacChange, number
from ferroscope.domain.macsets import MacSets, SetChange
from ferroscope.ports.store import Store, Transaction

_PAGE: Final = 2000
_NAMES: Final = 500


class Feed:
    """``sets`` are as of the last read; both reads raise ``StoreUnavailableError``."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.sets = MacSets()
        self.window = ChangeWindow()

    def whole(self) -> SetChange:
        """Read everything; return by how much what was known before was wrong."""
        window, allowed, denied = self._store.read(_everything)
        self.window = window
        return self.sets.replace(allowed, denied)

    def changes(self) -> SetChange:
        """Read what was changed since the last look."""
        now, changes, known = self._store.read(self._look)
        return self.sets.look(self.window.take(changes, now), known)

    def _look(self, tx: Transaction) -> tuple[float, list[MacChange], list[KnownMac]]:
        changes = _since(tx, self.window.low)
        macs = sorted({change.mac for change in changes if self.window.is_new(change)})
        known = [one for names in _chunks(macs) for one in tx.macs.known(macs=names)]
        return tx.now, changes, known


def _everything(tx: Transaction) -> tuple[ChangeWindow, set[int], set[int]]:
    window = ChangeWindow(tx.macs.newest(before=tx.now - HORIZON))
    window.take(_since(tx, window.low), tx.now)
    allowed: set[int] = set()
    denied: set[int] = set()
    for page in _pages(tx):
        for one in page:
            mac = number(one.mac)
            if mac is not None:
                (allowed if one.booting else denied).add(mac)
    return window, allowed, denied


def _pages(tx: Transaction) -> Iterator[Sequence[KnownMac]]:
    after = ""
    while page := tx.macs.known(after=after, limit=_PAGE):
        yield page
        after = page[-1].mac


def _since(tx: Transaction, low: int) -> list[MacChange]:
    found: list[MacChange] = []
    while page := tx.macs.since(low, _PAGE):
        found += page
        low = page[-1].seq
    return found


def _chunks(macs: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(macs), _NAMES):
        yield macs[start : start + _NAMES]
