"""``db.saved_searches`` on every database: the same search is saved by several at once, as by two clicks."""

from __future__ import annotations

import threading

from ferroscope.core.saved_search import SavedSearch
from ferroscope.db import Transaction
from tests.store.conftest import Adapter
from tests.support.processes import PATIENCE

_AT_ONCE = 8


def test_who_saves_the_same_search_at_the_same_time_saves_it(adapter: Adapter) -> None:
    errors: list[Exception] = []

    def save(number: int, name: str, together: threading.Barrier) -> None:
        together.wait(PATIENCE)
        try:
            adapter.write(lambda tx: tx.saved_searches.put(SavedSearch(user="u", name=name, q=f"cpu.count > {number}")))
        except Exception as exc:  # noqa: BLE001  # looked at below
            errors.append(exc)

    for name in ("a", "b", "c", "d"):
        together = threading.Barrier(_AT_ONCE)
        threads = [threading.Thread(target=save, args=(number, name, together)) for number in range(_AT_ONCE)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
    assert errors == []
    assert [one.name for one in adapter.read(lambda tx: tx.saved_searches.list("u"))] == ["a", "b", "c", "d"]


def test_who_saves_others_at_the_same_time_counts_them_one_after_the_other(adapter: Adapter) -> None:
    """Otherwise each finds room for its own, and there are more than one user may have."""
    adapter.write(lambda tx: tx.saved_searches.put(SavedSearch(user="u", name="first")))
    together, found = threading.Barrier(_AT_ONCE), list[int]()

    def save(number: int) -> None:
        together.wait(PATIENCE)

        def work(tx: Transaction) -> int:
            known = len(tx.saved_searches.names("u"))
            tx.saved_searches.put(SavedSearch(user="u", name=f"n{number}"))
            return known

        found.append(adapter.write(work))

    threads = [threading.Thread(target=save, args=(number,)) for number in range(_AT_ONCE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert sorted(found) == list(range(1, _AT_ONCE + 1))
