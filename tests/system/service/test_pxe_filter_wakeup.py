"""A PXE filter in another process hears of a change of who may boot at once, where the database can tell."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ferroscope.config.options import DatabaseSettings, Settings
from ferroscope.runtime.backend import Backend, open_backend
from ferroscope.runtime.system import SystemClock
from tests.support import examples
from tests.support.processes import PATIENCE, until


@contextmanager
def _process(url: str, *, listen: bool) -> Iterator[Backend]:
    stop = threading.Event()
    others = threading.enumerate()
    settings = Settings(database=DatabaseSettings(connection=url))
    backend = open_backend(settings, clock=SystemClock(), stop=stop, listen=listen)
    try:
        yield backend
    finally:
        stop.set()
        for thread in threading.enumerate():
            if thread.name == "wake-up" and thread not in others:
                thread.join(PATIENCE)
        backend.close()


@pytest.mark.parametrize("database", ["sqlite", "postgresql", "mariadb"])
def test_a_new_port_wakes_a_filter_in_another_process_at_once(request: pytest.FixtureRequest, database: str) -> None:
    url = request.getfixturevalue(f"{database}_url")
    with _process(url, listen=True) as pxe_filter, _process(url, listen=False) as api:
        assert until(lambda: pxe_filter.bus.hears)
        seen = pxe_filter.bus.wait_any(("allow", "deny"), 0, 0.0)
        node = examples.node()
        api.store.write(lambda tx: (tx.nodes.add(node), tx.ports.add([examples.port(node)])))
        assert pxe_filter.bus.wait_any(("allow", "deny"), seen, PATIENCE) > seen
