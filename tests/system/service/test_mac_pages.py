"""How many rows a server reads for a page of the MACs that it knows: a matter of its plan, so no simulation has it."""

from __future__ import annotations

import threading
from typing import Any

from sqlalchemy import text

from ferroscope.config.options import DatabaseSettings, Settings
from ferroscope.runtime.backend import open_backend
from ferroscope.runtime.system import SystemClock
from tests.support import examples


def test_mariadb_reads_a_page_of_known_macs_without_all_others(mariadb_url: str) -> None:
    settings = Settings(database=DatabaseSettings(connection=mariadb_url))
    backend = open_backend(settings, clock=SystemClock(), stop=threading.Event(), listen=False)
    try:
        nodes = [examples.node() for _ in range(10)]
        for node in nodes:
            backend.store.write(lambda tx, node=node: tx.nodes.add(node))
        ports = [examples.port(nodes[n % 10], address=f"52:54:00:00:{n >> 8:02x}:{n & 255:02x}") for n in range(3000)]
        for first in range(0, len(ports), 100):  # a long transaction is ended by the server
            some = ports[first : first + 100]
            backend.store.write(lambda tx, some=some: tx.ports.add(some))

        def rows_for_a_page(tx: Any) -> int:
            before = _rows_read(tx)
            assert len(tx.macs.known(after="52:54:00:00:05:00", limit=50)) == 50
            return _rows_read(tx) - before

        assert backend.store.read(rows_for_a_page) < 1000
    finally:
        backend.close()


def _rows_read(tx: Any) -> int:
    return sum(int(count) for _, count in tx.connection.execute(text("SHOW SESSION STATUS LIKE 'Handler_read%'")))
