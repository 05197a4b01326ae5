"""Ramdisks that call while the database does not answer are told at once to call again, however many they are."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import urllib3

from tests.api.service import callback_body
from tests.support import databases, examples
from tests.support.installation import configuration, running
from tests.support.processes import free_port, until
from tests.support.servers import Server

CALLERS = 200
# One attempt takes the five seconds of ``connect_timeout`` and ``statement_timeout``. In a line, four at a time, the
# last of the callers would be answered after four minutes.
ANSWERED_WITHIN_SECONDS = 20.0
API = [sys.executable, "-c", "from ferroscope_client.cli.main import main; main()", "api", "-c"]


@pytest.fixture(params=["postgresql", "mariadb"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    own = Server(request.param, f"{request.param}-{os.getpid()}-silent")
    yield own
    own.discard()


def test_callers_during_a_silence_of_the_database_get_503_and_when_to_call_again(
    server: Server, tmp_path: Path
) -> None:
    port = free_port()
    client = urllib3.HTTPConnectionPool(
        "127.0.0.1", port, maxsize=CALLERS, retries=False, timeout=ANSWERED_WITHIN_SECONDS
    )

    def call(_number: int = 0) -> tuple[int, bool]:
        answer = client.request("POST", "/v1/continue_inspection", json=callback_body(examples.mac()))
        return answer.status, "Retry-After" in answer.headers

    with databases.fresh(server) as url:
        file = tmp_path / "ferroscope.conf"
        file.write_text(configuration(tmp_path, port, "[drivers]\nenabled = fake-hardware\n", database=url))
        with running("api", tmp_path, [*API, str(file)], lambda: _answers(client)):
            assert call() == (404, False)
            server.freeze()
            try:
                with ThreadPoolExecutor(CALLERS) as callers:
                    assert set(callers.map(call, range(CALLERS))) == {(503, True)}
            finally:
                server.thaw()
            assert until(lambda: call() == (404, False))


def _answers(client: urllib3.HTTPConnectionPool) -> bool:
    try:
        return bool(client.request("GET", "/").status == 200)
    except urllib3.exceptions.HTTPError:
        return False
