"""A database that is away is in the log, once in a while, whatever the number of callers."""

from __future__ import annotations

from typing import Any, cast

import falcon
import falcon.testing

from ferroscope.api.http.context import ApiContext
from ferroscope.api.http.failure import failure
from ferroscope.api.http.versions import BARE_METAL
from ferroscope.contracts.errors import StoreUnavailableError
from ferroscope.telemetry.log import QuietLog


class Context:
    """As much of a context as an error needs."""

    def __init__(self) -> None:
        self.outages = QuietLog(burst=1)
        self.now = 0.0
        self.lines: list[dict[str, Any]] = []
        self.data = self.process = self.clock = self.log = self

    def monotonic(self) -> float:
        return self.now

    def warning(self, _event: str, **fields: Any) -> None:
        self.lines.append(fields)


def test_a_503_is_logged_once_in_ten_seconds() -> None:
    context = Context()
    request = falcon.Request(falcon.testing.create_environ("/v1/nodes"))
    exc = StoreUnavailableError("the database is unavailable: database or disk is full")
    for now in (0.0, 1.0, 2.0, 11.0):
        context.now = now
        reply = failure(cast("ApiContext", context), request, exc, BARE_METAL)
        assert reply.status == 503
        assert b"disk is full" not in cast("bytes", reply.body)
    assert [line["left_out"] for line in context.lines] == [0, 2]
    assert "disk is full" in context.lines[0]["why"]
