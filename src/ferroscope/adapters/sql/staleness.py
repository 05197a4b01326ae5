"""Which pooled connections a broken one has put under suspicion.

A server that went away took all idle connections with it. The first that is found broken makes
those of before stale: each is closed and opened anew when it is next taken from the pool, before
anybody waits for an answer on it. Connections in use are left to their users.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import Engine, event
from sqlalchemy.exc import DisconnectionError

_GENERATION: Final = "generation"


class Staleness:
    """The generation of an engine's connections; those of an earlier one are replaced at check-out."""

    def __init__(self, engine: Engine) -> None:
        self._generation = 0
        event.listen(engine, "connect", self._opened)
        event.listen(engine, "checkout", self._taken)

    def suspect_all(self) -> None:
        """Have every connection that is open now replaced before its next use."""
        self._generation += 1

    def _opened(self, _connection: Any, record: Any) -> None:
        record.info[_GENERATION] = self._generation

    def _taken(self, _connection: Any, record: Any, _proxy: Any) -> None:
        if record.info.get(_GENERATION, 0) != self._generation:
            raise DisconnectionError("opened before another connection was found broken")
