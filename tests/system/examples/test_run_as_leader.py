"""The example that runs a command as the leader, for real: several of it, the service, signals, a lost lease."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT
from tests.support.processes import PATIENCE, is_running, until
from tests.system.cli.conftest import serve
from tests.system.cli.scripted import Serve
from tests.system.examples.test_lease_run import Scene as LeaseScene

__all__ = ["serve"]

_LEAD = ROOT / "examples" / "01-run-a-script-as-leader" / "lead.py"
_NAME = "test/leader"
_COMMAND = 'echo "$LEASE_EPOCH $$" >> epochs; exec sleep 60'


class Scene(LeaseScene):
    """The service on a real port, and the programs that campaign for one lease."""

    def lead(self, *command: str, duration: float = 2.0) -> subprocess.Popen[bytes]:
        """Start a candidate."""
        line = [sys.executable, str(_LEAD), "--url", self.url, "--duration", str(duration), "--poll", "0.05", _NAME]
        with (self.directory / "log").open("ab") as log:
            started = subprocess.Popen([*line, "--", *command], cwd=self.directory, stdout=log, stderr=log)
        self._started.append(started)
        return started

    def led(self) -> list[tuple[int, int]]:
        """Return epoch and pid of every command that was run, in their order."""
        file = self.directory / "epochs"
        lines = file.read_text().splitlines() if file.exists() else []
        return [(int(line.split()[0]), int(line.split()[1])) for line in lines]

    def lease(self) -> Any:
        return self.service.bare_metal.get(f"/v1/leases/{_NAME}").json


@pytest.fixture
def scene(sqlite_url: str, tmp_path: Path) -> Iterator[Scene]:
    """Give a scene that is cleared afterwards."""
    staged = Scene(sqlite_url, tmp_path)
    yield staged
    staged.close()


def test_one_of_several_runs_the_command_and_the_next_one_follows_a_clean_stop(scene: Scene) -> None:
    first = scene.lead("sh", "-c", _COMMAND, duration=8.0)
    assert until(lambda: len(scene.led()) == 1)
    scene.lead("sh", "-c", _COMMAND, duration=8.0)
    assert not until(lambda: len(scene.led()) > 1, seconds=9), "longer than the lease lives without renewal"
    (before,) = scene.service.store.read(lambda tx: tx.leases.list(_NAME))
    first.send_signal(signal.SIGTERM)
    assert first.wait(PATIENCE) == 0
    assert not is_running(scene.led()[0][1])
    (after,) = scene.service.store.read(lambda tx: tx.leases.list(_NAME))
    assert after.holder != before.holder, "the next one need not wait for the lease's end"
    assert until(lambda: len(scene.led()) == 2)
    assert [epoch for epoch, _ in scene.led()] == [1, 2]


def test_the_command_is_killed_when_the_lease_is_lost(scene: Scene) -> None:
    leader = scene.lead("sh", "-c", _COMMAND)
    assert until(lambda: len(scene.led()) == 1)
    (lease,) = scene.service.store.read(lambda tx: tx.leases.list(_NAME))
    scene.service.store.write(lambda tx: tx.members.leave(lease.holder))  # frees what it holds
    assert leader.wait(PATIENCE) == 75
    assert not is_running(scene.led()[0][1])


def test_the_command_is_killed_in_time_when_nobody_answers(scene: Scene) -> None:
    # It stops when a fifth of the lease's life is left; that has to be more than what a busy machine keeps it waiting.
    leader = scene.lead("sh", "-c", _COMMAND, duration=8.0)
    assert until(lambda: len(scene.led()) == 1)
    scene.server.stop(5)
    code, ended = leader.wait(PATIENCE), time.time()
    (lease,) = scene.service.store.read(lambda tx: tx.leases.list(_NAME))
    assert code == 75
    assert ended < lease.expires_at, "it has stopped before the lease's end"
    assert not is_running(scene.led()[0][1])


def test_the_command_dies_with_a_leader_that_is_killed(scene: Scene) -> None:
    leader = scene.lead("sh", "-c", _COMMAND)
    assert until(lambda: len(scene.led()) == 1)
    leader.kill()
    assert until(lambda: not is_running(scene.led()[0][1]))


@pytest.mark.parametrize(("command", "code"), [("exit 0", 0), ("exit 3", 3), ("kill -9 $$", 137)])
def test_the_exit_code_is_the_commands_and_the_lease_is_free(scene: Scene, command: str, code: int) -> None:
    assert scene.lead("sh", "-c", command).wait(PATIENCE) == code
    assert scene.lease()["holder"] is None


# The token. What the service itself does with one is tested with its api; here it is what a candidate sends, and where.

_TOKEN = "fst_0123456789ab_" + "t" * 43
_ACQUIRED = b'{"epoch": 7, "token": "x", "remaining": 60}'


def _lead(url: str, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, str(_LEAD), "--url", url, _NAME, "--", *command]
    variables = {name: value for name, value in os.environ.items() if not name.startswith("FERROSCOPE_")}
    return subprocess.run(
        line, env={**variables, **environment}, capture_output=True, text=True, timeout=PATIENCE, check=False
    )


@pytest.mark.parametrize("source", ["variable", "file"])
def test_the_token_goes_with_every_call_and_not_to_the_command(serve: Serve, tmp_path: Path, source: str) -> None:
    server = serve((201, {}, _ACQUIRED), (200, {}, b"{}"))
    file = tmp_path / "token"
    file.write_text(f"{_TOKEN}\n")
    given = {"FERROSCOPE_TOKEN": _TOKEN} if source == "variable" else {"FERROSCOPE_TOKEN_FILE": str(file)}
    done = _lead(server.url, "sh", "-c", "env", **given)
    assert done.returncode == 0, done.stderr
    assert "LEASE_EPOCH=7" in done.stdout
    assert _TOKEN not in done.stdout + done.stderr
    assert [(ask[0], ask[2].get("X-Auth-Token")) for ask in server.asked] == [("POST", _TOKEN), ("DELETE", _TOKEN)]


def test_the_token_crosses_no_network_in_plain_text_and_follows_no_redirect(
    serve: Serve,
) -> None:
    assert "plain HTTP" in _lead("http://192.0.2.1:6385", "true", FERROSCOPE_TOKEN=_TOKEN).stderr
    other = serve((201, {}, _ACQUIRED))
    server = serve((302, {"Location": other.url}, b""), (401, {}, b"{}"))
    assert _lead(server.url, "true", FERROSCOPE_TOKEN=_TOKEN).returncode == 1
    assert len(server.asked) == 2
    assert other.asked == []
