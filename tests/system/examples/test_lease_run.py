"""``ferroscope lease run`` and the client package, for real: several candidates, signals, a lost lease, faults.

Each command appends to a file while it runs, so that it can be counted how many ran at a time.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ferroscope.config.options import ApiSettings
from ferroscope.http_server.server import HttpServer, bind
from ferroscope_lease import Leases
from tests.api.service import Service
from tests.support.processes import PATIENCE, is_running, signal_tree, tree, until

NAME = "test/leader"
# Each line: epoch, pid, and a time that all processes of this host share.
BEATS = """
import os, sys, time
epoch, pid = os.environ["LEASE_EPOCH"], os.getpid()
while True:
    with open("beats", "a") as file:
        file.write(f"{epoch} {pid} {time.clock_gettime(time.CLOCK_BOOTTIME)}\\n")
    time.sleep(0.01)
"""


class Scene:
    """The service on a real port, and the programs that campaign for one lease."""

    def __init__(self, url: str, directory: Path) -> None:
        self.service = Service(url)
        self.directory = directory
        self._socket = bind("127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self.server = HttpServer(self.service.app, ApiSettings(), [self._socket])
        self.server.start()
        self.log = directory / "log"
        self._started: list[subprocess.Popen[bytes]] = []

    def run(self, *command: str, duration: float = 4.0, grace: float = 5.0) -> subprocess.Popen[bytes]:
        """Start a candidate."""
        line = [sys.executable, "-m", "ferroscope", "lease", "run", "--url", self.url, "--duration", str(duration)]
        with self.log.open("ab") as log:
            started = subprocess.Popen(
                [*line, "--grace", str(grace), NAME, "--", *command], cwd=self.directory, stdout=log, stderr=log
            )
        self._started.append(started)
        return started

    def beat(self, duration: float = 4.0) -> subprocess.Popen[bytes]:
        """Start a candidate whose command beats."""
        return self.run(sys.executable, "-c", BEATS, duration=duration)

    def beats(self) -> list[tuple[int, int, float]]:
        """Return the epoch, pid and time of each beat."""
        file = self.directory / "beats"
        lines = file.read_text().splitlines() if file.exists() else []
        found = [line.split() for line in lines]
        return [(int(epoch), int(pid), float(at)) for epoch, pid, at in found if at]

    def wait_epoch(self, after: int) -> tuple[int, int]:
        """Return epoch and pid of the command that runs in an epoch after this one."""
        assert until(lambda: any(beat[0] > after for beat in self.beats())), self.log.read_text()
        epoch, pid, _ = self.beats()[-1]
        return epoch, pid

    def overlaps(self) -> int:
        """Return how many beats of an epoch came after the first one of a later epoch."""
        newest, late = 0, 0
        for epoch, _pid, _at in sorted(self.beats(), key=lambda beat: beat[2]):
            late += epoch < newest
            newest = max(newest, epoch)
        return late

    def close(self) -> None:
        for started in self._started:
            if started.poll() is None:
                signal_tree(started.pid, signal.SIGKILL)
            started.wait()
        self.server.stop(5)
        self.service.close()


@pytest.fixture
def scene(sqlite_url: str, tmp_path: Path) -> Iterator[Scene]:
    """Give a scene that is cleared afterwards."""
    staged = Scene(sqlite_url, tmp_path)
    yield staged
    staged.close()


def test_never_two_commands_run_whatever_happens_to_their_leaders(scene: Scene) -> None:
    candidates = [scene.beat() for _ in range(2)]
    epoch, killed = scene.wait_epoch(0), 0
    for harm in (signal.SIGKILL, signal.SIGSTOP, signal.SIGKILL):
        leader = next(one for one in candidates if epoch[1] in tree(one.pid))
        # Only this process, neither its watchdog nor its command: these must not need it.
        os.kill(leader.pid, harm)
        before, epoch = epoch, scene.wait_epoch(epoch[0])
        assert not is_running(before[1])
        if harm == signal.SIGSTOP:
            os.kill(leader.pid, signal.SIGCONT)
            assert leader.wait(PATIENCE) == 75
        else:
            leader.wait(PATIENCE)
            killed += 1
        candidates = [one for one in candidates if one is not leader] + [scene.beat()]
    # A partition: nobody answers, so the command ends by itself before the lease does, and its leader says so.
    leader = next(one for one in candidates if epoch[1] in tree(one.pid))
    scene.server.stop(5)
    assert leader.wait(PATIENCE) == 75
    assert not is_running(epoch[1])
    last = max(beat[2] for beat in scene.beats())
    lease = scene.service.bare_metal.get(f"/v1/leases/{NAME}").json
    remaining = lease["remaining"] if lease["holder"] else 0.0
    assert last < time.clock_gettime(time.CLOCK_BOOTTIME) + remaining
    assert scene.overlaps() == 0
    assert len({beat[0] for beat in scene.beats()}) == 4
    assert killed == 2


def test_a_dead_watchdog_and_a_lost_lease_end_the_command(scene: Scene) -> None:
    leader = scene.beat(duration=60)
    epoch, pid = scene.wait_epoch(0)
    (watchdog,) = [one for one in tree(leader.pid) if one not in (leader.pid, pid)]
    os.kill(watchdog, signal.SIGKILL)
    assert leader.wait(PATIENCE) == 75
    assert not is_running(pid)
    leader = scene.beat(duration=4)
    _, pid = scene.wait_epoch(epoch)
    (lease,) = scene.service.store.read(lambda tx: tx.leases.list(NAME))
    scene.service.store.write(lambda tx: tx.members.leave(lease.holder))  # frees what it holds
    assert leader.wait(PATIENCE) == 75
    assert not is_running(pid)


@pytest.mark.parametrize(
    ("command", "code"), [("exit 0", 0), ("exit 3", 3), ("kill -9 $$", 137), ("exec /no/such/program", 127)]
)
def test_the_exit_code_is_the_commands_and_the_lease_is_free(scene: Scene, command: str, code: int) -> None:
    assert scene.run("sh", "-c", command).wait(PATIENCE) == code, scene.log.read_text()
    assert scene.service.bare_metal.get(f"/v1/leases/{NAME}").json["holder"] is None


def test_signals_reach_the_command_orphans_are_reaped_and_none_is_left(scene: Scene) -> None:
    script = (
        'trap "echo hup >> said" HUP; trap "echo term >> said; exit 5" TERM; '
        "setsid sleep 300 & echo $! > orphan; (sh -c 'exit 0' &) ; echo ready > said; while :; do sleep 0.05; done"
    )
    leader = scene.run("sh", "-c", script)
    said = scene.directory / "said"
    assert until(lambda: said.exists() and said.read_text() == "ready\n"), scene.log.read_text()
    leader.send_signal(signal.SIGHUP)
    assert until(lambda: "hup" in said.read_text())
    assert until(lambda: all(is_running(pid) for pid in tree(leader.pid)))  # no zombie
    leader.send_signal(signal.SIGTERM)
    assert leader.wait(PATIENCE) == 5
    assert "term" in said.read_text()
    assert not is_running(int((scene.directory / "orphan").read_text()))
    assert scene.service.bare_metal.get(f"/v1/leases/{NAME}").json["holder"] is None


def test_a_command_that_ignores_sigterm_is_killed_and_a_waiting_candidate_just_ends(scene: Scene) -> None:
    leader = scene.run("sh", "-c", 'trap "" TERM; echo ready > said; while :; do sleep 0.05; done', grace=0.2)
    assert until((scene.directory / "said").exists), scene.log.read_text()
    waiting = scene.run("true")
    assert until(lambda: "held by" in scene.log.read_text())
    waiting.send_signal(signal.SIGTERM)
    assert waiting.wait(PATIENCE) == 0
    leader.send_signal(signal.SIGTERM)
    assert leader.wait(PATIENCE) == 0


def test_commands_of_a_former_leader_change_nothing(scene: Scene) -> None:
    add = f"{sys.executable} -m ferroscope --url {scene.url} node create --driver fake-hardware"
    assert scene.run("sh", "-c", f"{add} m1", duration=60).wait(PATIENCE) == 0, scene.log.read_text()
    late = f"FERROSCOPE_IF_LEASE=test/leader/1/x {add} m2"
    assert scene.run("sh", "-c", late, duration=60).wait(PATIENCE) == 4
    assert [node["name"] for node in scene.service.bare_metal.get("/v1/nodes").json["nodes"]] == ["m1"]


def test_the_client_package_holds_a_lease_in_a_block_and_knows_when_it_is_lost(scene: Scene) -> None:
    leases = Leases(scene.url)
    with leases.hold(NAME, duration=2) as lease:
        assert lease.is_valid()
        first = lease.trusted_until
        assert until(lambda: lease.trusted_until > first)  # renewed
        assert leases.acquire(NAME, 2.0)[0] is None
        headers = lease.if_lease
        assert (
            scene.service.bare_metal.post("/v1/nodes", {"driver": "fake-hardware"}, headers=headers).status_code == 201
        )
    assert not lease.is_valid()
    assert scene.service.bare_metal.post("/v1/nodes", {"driver": "fake-hardware"}, headers=headers).status_code == 412
    with leases.hold(NAME, duration=2) as lease:
        assert lease.epoch == 2
        (stored,) = scene.service.store.read(lambda tx: tx.leases.list(NAME))
        scene.service.store.write(lambda tx: tx.members.leave(stored.holder))
        assert until(lambda: not lease.is_valid())


# Runs a command, and is sent SIGHUP while the command runs already but its process ID is not known yet.
EARLY_SIGNAL = """
import os, signal, subprocess, time
from ferroscope_lease import run

class Held:
    trusted_until, duration, lost = run.now() + 60, 60.0, None
    def start(self): ...
    def is_valid(self): return True

class Slow(subprocess.Popen):
    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGHUP)
        time.sleep(0.1)

subprocess.Popen = Slow
runner = run.LeaseRunner(print)
runner.start()
code = runner.run(Held(), ["sh", "-c", 'trap "exit 7" HUP; sleep 1 & wait; wait; exit 1'], dict(os.environ), 1.0)
runner.close()
raise SystemExit(code)
"""


def test_a_signal_that_arrives_while_the_command_starts_is_forwarded() -> None:
    assert subprocess.run([sys.executable, "-c", EARLY_SIGNAL], check=False).returncode == 7
