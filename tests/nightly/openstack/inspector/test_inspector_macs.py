"""The MACs that an ironic-inspector inspects, out of databases that it has made itself."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ferroscope.config.errors import SetupError
from ferroscope.contrib.openstack.imports.inspector_macs import InspectorMacs
from tests.support.inspector import WAITING, filled_sqlite
from tests.support.manual_clock import ManualClock
from tests.support.processes import until

MAC = "11:22:33:44:55:66"


@pytest.fixture
def stop() -> Iterator[threading.Event]:
    flag = threading.Event()
    yield flag
    flag.set()


def test_they_are_read_again_and_remembered_for_an_hour(tmp_path: Path, stop: threading.Event) -> None:
    database, clock = filled_sqlite(tmp_path), ManualClock()
    with sqlite3.connect(database) as connection:
        rows = [("a", WAITING, "mac", MAC.upper()), ("b", WAITING, "mac", "nonsense")]
        connection.executemany("INSERT INTO attributes (uuid, node_uuid, name, value) VALUES (?, ?, ?, ?)", rows)
    connection.close()
    macs = InspectorMacs(f"sqlite:///{database}", period=0.05, clock=clock, stop=stop)
    macs.start()
    assert (macs.active(), macs.problem()) == (frozenset({MAC}), None)
    away = database.rename(database.with_suffix(".away"))
    assert until(lambda: macs.problem() is not None)
    found = macs.problem()
    assert found is not None
    assert found.code == "inspector-unreadable"
    clock.now += 3000
    assert macs.active() == {MAC}
    clock.now += 3000
    assert macs.active() == frozenset()
    away.rename(database)
    assert until(lambda: macs.active() == {MAC})
    assert macs.problem() is None


@pytest.mark.parametrize("url", ["oracle://u:secret@h/x", "nonsense"])
def test_what_is_no_database_is_refused_at_the_start_without_its_password(url: str, stop: threading.Event) -> None:
    with pytest.raises(SetupError) as raised:
        InspectorMacs(url, period=1.0, clock=ManualClock(), stop=stop)
    assert "[pxe_filter] inspector_connection" in str(raised.value)
    assert "secret" not in str(raised.value)
