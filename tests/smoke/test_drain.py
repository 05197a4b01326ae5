"""A process that is stopped drains before it closes, and one that cannot write says so."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.api.test_drain import _status
from tests.support.installation import configuration
from tests.support.processes import PATIENCE, free_port, until


@pytest.mark.parametrize(("role", "more"), [("all", ()), ("api", ("--processes", "2"))], ids=["all", "supervised"])
def test_a_process_that_is_stopped_drains_before_it_closes(
    sqlite_url: str, tmp_path: Path, role: str, more: tuple[str, ...]
) -> None:
    port = free_port()
    file = tmp_path / "ferroscope.conf"
    file.write_text(configuration(tmp_path, port, "[api]\ndrain_delay = 4\n", database=sqlite_url))
    command = [sys.executable, "-m", "ferroscope", role, "-c", str(file), *more]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=tmp_path, stdout=log, stderr=log)
    try:
        assert until(lambda: _status(port, "/healthcheck") == 200)
        process.send_signal(signal.SIGTERM)
        assert until(lambda: _status(port, "/healthcheck") == 503)
        assert _status(port, "/v1/nodes") == 200
        assert until(lambda: _status(port, "/v1/nodes") == 0)
        assert process.wait(PATIENCE) == 0, (tmp_path / "log").read_text()
    finally:
        process.kill()
        process.wait()
