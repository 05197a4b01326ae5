"""Sessions of several threads: one that waits for its database keeps no other from beginning."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from ferroscope.db.executor import Command, Result
from ferroscope.db.session import Session
from tests.support.processes import PATIENCE
from tests.support.stores import open_store


class _Connection(str):
    info: dict[str, Any] = {}


def test_a_session_begins_while_another_one_waits_for_a_lock() -> None:
    shared = open_store()._shared
    waits, go_on, began = threading.Event(), threading.Event(), threading.Event()

    def send(connection: Any, _commands: Sequence[Command]) -> list[Result]:
        if connection == "locked":
            waits.set()
            assert go_on.wait(PATIENCE)
        else:
            began.set()
        return []

    shared.send = send
    locked, free = (Session(shared, _Connection(name), ()) for name in ("locked", "free"))  # type: ignore[arg-type]
    threads = [threading.Thread(target=lambda: locked.now), threading.Thread(target=lambda: free.now)]
    threads[0].start()
    try:
        assert waits.wait(PATIENCE)
        threads[1].start()
        assert began.wait(PATIENCE)
    finally:
        go_on.set()
        for thread in threads:
            thread.join(PATIENCE)
