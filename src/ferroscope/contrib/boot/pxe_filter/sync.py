"""Reads the known MACs from the store as changes to the filter's sets: once completely, then incrementally.

An entry in the list of changes only says that a MAC must be read again. Its current state is read in the same
transaction, so neither the order of changes nor repeated entries matter.

Machines that another service inspects beside this one may boot, too, even if they are unknown here.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final

from ferroscope.core.boot_macs import (
    HORIZON_SECONDS,
    ChangeWindow,
    KnownMac,
    MacChange,
    MacSets,
    SetChange,
    SortedMacs,
    number,
)
from ferroscope.db import Store, Transaction

_PAGE_ROWS: Final = 2000
_CHUNK_MACS: Final = 500


def _nothing() -> None: ...


class MacSync:
    """``sets`` are as of the last read; both methods raise ``StoreUnavailableError``.

    ``elsewhere`` returns the MACs, as ``aa:bb:cc:dd:ee:ff``, of machines that another service inspects.
    """

    def __init__(self, store: Store, elsewhere: Callable[[], frozenset[str]] = frozenset) -> None:
        self._store = store
        self._elsewhere = elsewhere
        self._booting: frozenset[str] = frozenset()  # those that are in ``sets``
        self.sets = MacSets()
        self.window = ChangeWindow()

    def whole(self, alive: Callable[[], None] = _nothing) -> SetChange:
        """Read everything; return the difference to the sets known before. ``alive`` is called for each page."""
        window, allowed, denied = self._store.read(partial(_read_everything, alive))
        self.window = window
        self._booting = self._elsewhere()
        for mac in map(number, self._booting):
            if mac is not None:
                allowed.add(mac)
                denied.discard(mac)
        return self.sets.replace(allowed, denied)

    def changes(self, alive: Callable[[], None] = _nothing) -> Iterator[SetChange]:
        """Read the changes since the last read, page by page; ``alive`` is called for each page."""
        if change := self._changes_elsewhere():
            yield change
        start = self.window.low
        while True:
            alive()
            now, page, known_macs = self._store.read(partial(self._look, start))
            macs = self.window.take(page, now)
            change = self.sets.look(macs, [*known_macs, *self._booting_elsewhere(macs)])
            if change:
                yield change
            if len(page) < _PAGE_ROWS:
                return
            start = page[-1].seq

    def _changes_elsewhere(self) -> SetChange:
        """Return the change for the machines whose inspection by the other service has begun or ended."""
        before, self._booting = self._booting, self._elsewhere()
        macs = sorted(before ^ self._booting)
        if not macs:
            return SetChange()
        try:
            known_macs = self._store.read(
                lambda tx: [known_mac for names in _chunks(macs) for known_mac in tx.macs.known(macs=names)]
            )
        except BaseException:
            self._booting = before  # to be read again
            raise
        return self.sets.look(macs, [*known_macs, *self._booting_elsewhere(macs)])

    def _booting_elsewhere(self, macs: Iterable[str]) -> list[KnownMac]:
        return [KnownMac(mac, booting=True) for mac in macs if mac in self._booting]

    def _look(self, start: int, tx: Transaction) -> tuple[float, Sequence[MacChange], list[KnownMac]]:
        page = tx.macs.since(start, _PAGE_ROWS)
        macs = sorted({change.mac for change in page if self.window.is_new(change)})
        return tx.now, page, [known_mac for names in _chunks(macs) for known_mac in tx.macs.known(macs=names)]


def _read_everything(alive: Callable[[], None], tx: Transaction) -> tuple[ChangeWindow, SortedMacs, SortedMacs]:
    window = ChangeWindow(tx.macs.newest(before=tx.now - HORIZON_SECONDS))
    low = window.low
    while changes := tx.macs.since(low, _PAGE_ROWS):
        window.take(changes, tx.now)
        low = changes[-1].seq
        alive()
    allowed, denied = array("Q"), array("Q")
    for page in _pages(tx):
        alive()
        for known_mac in page:
            mac = number(known_mac.mac)
            if mac is not None:
                (allowed if known_mac.booting else denied).append(mac)
    return window, SortedMacs(allowed), SortedMacs(denied)


def _pages(tx: Transaction) -> Iterator[Sequence[KnownMac]]:
    after = ""
    while page := tx.macs.known(after=after, limit=_PAGE_ROWS):
        yield page
        after = page[-1].mac


def _chunks(macs: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(macs), _CHUNK_MACS):
        yield macs[start : start + _CHUNK_MACS]
