"""What the sessions of a PostgreSQL server wait for, looked at every few milliseconds while a benchmark runs."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Final

import psycopg

from ferroscope.db.url import checked
from ferroscope_sim.run import Beside

# Seconds between two looks.
_PERIOD: Final = 0.01
# Sessions that a client is not waiting for are idle, whatever they say.
_LOOK: Final = (
    "SELECT coalesce(wait_event_type || ' ' || wait_event, 'running'), count(*) FROM pg_stat_activity "
    "WHERE datname = current_database() AND pid <> pg_backend_pid() AND state = 'active' GROUP BY 1"
)


class Waits(Beside):
    """Afterwards ``sessions`` has the mean number of busy sessions by what they wait for."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = checked(url).set(drivername="postgresql").render_as_string(hide_password=False)
        self._seen: Counter[str] = Counter()
        self._looks = 0

    @property
    def sessions(self) -> dict[str, float]:
        """Most first."""
        return {what: count / max(1, self._looks) for what, count in self._seen.most_common()}

    def _run(self) -> None:
        with suppress(psycopg.OperationalError), psycopg.connect(self._url, autocommit=True) as connection:
            while not self._stop.wait(_PERIOD):  # or until the server ends
                for what, count in connection.execute(_LOOK):
                    self._seen[what] += count
                self._looks += 1
