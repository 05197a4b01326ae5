"""An outage of the database is said once by what wakes a process up, however long it lasts and often it is tried."""

from __future__ import annotations

import threading

import structlog.testing

from ferroscope.bus.local import LocalBus
from ferroscope.bus.postgresql import PollingWatcher, PostgresqlWatcher
from ferroscope.config.options import DatabaseSettings
from tests.support.processes import free_port
from tests.support.rows import each


class Tries(threading.Event):
    """A stop flag that is set after so many waits; nobody waits."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.left = most

    def wait(self, timeout: float | None = None) -> bool:
        self.left -= 1
        if self.left <= 0:
            self.set()
        return self.is_set()


@each(
    ("scheme", "watcher"),
    [("postgresql", PostgresqlWatcher), ("mysql+pymysql", PollingWatcher)],
)
def test_an_outage_is_said_once(scheme: str, watcher: type[PostgresqlWatcher] | type[PollingWatcher]) -> None:
    settings = DatabaseSettings(connection=f"{scheme}://nobody:secret@127.0.0.1:{free_port()}/none")
    stop = Tries(20)
    with structlog.testing.capture_logs() as lines:
        watcher(settings, bus=LocalBus(), stop=stop).run()
    assert stop.left == 0
    (line,) = lines
    assert line["event"] == "wake-up connection lost, polling until it is back"
    assert "refused" in line["error"]
    assert "secret" not in line["error"]
