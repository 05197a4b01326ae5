"""The clock of the database, and of its host, is set while a service runs, or between two runs of it.

SQLite's clock is its host's, which libfaketime sets for the service alone; CLOCK_BOOTTIME goes on as it is.
"""

from __future__ import annotations

import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ferroscope.runtime.system import DatabaseClock
from tests.support.installation import Played
from tests.support.processes import PATIENCE, free_port, until
from tests.support.pxe.host_clock import HostClock
from tests.system.cluster.test_long_steps import ask

DAY = 86_400
_SETTINGS = """
[database]
connection = sqlite:///{directory}/f.db
[api]
host = 127.0.0.1
bare_metal_port = {port}
introspection_port = 0
[drivers]
enabled = fake-hardware
[inspector]
timeout = 600
timeout_period = 1
[worker]
heartbeat_interval = 0.5
member_ttl = 3
[lease]
profile = fast
"""
_LEASE = "SELECT epoch, renewed_at FROM leases WHERE name = 'periodic/timeouts'"
_STEPS = "SELECT id FROM clock_steps"


class Host:
    """``ferroscope all`` on a host whose clock can be set."""

    def __init__(self, directory: Path) -> None:
        self.clock = HostClock(directory)
        self.directory = directory
        self.port = free_port()
        (directory / "f.conf").write_text(_SETTINGS.format(directory=directory, port=self.port))
        command = [*self.clock.prefix, sys.executable, "-m", "ferroscope", "all", "-c", "f.conf"]
        self.service = Played("f", directory, command)
        self.service.wait_ready()

    def call(self, method: str, path: str, body: Any = None) -> Any:
        content = None if body is None else msgspec.json.encode(body)
        headers = {"X-OpenStack-Ironic-API-Version": "1.95", "Content-Type": "application/json"}
        url = f"http://127.0.0.1:{self.port}{path}"
        request = urllib.request.Request(url, data=content, headers=headers, method=method)
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return msgspec.json.decode(answer.read() or b"null")

    def waiting(self, name: str) -> str:
        """Return a new node whose machine is waited for."""
        node = str(self.call("POST", "/v1/nodes", {"name": name, "driver": "fake-hardware"})["uuid"])
        self.reaches(node, "manage", "manageable")
        self.reaches(node, "inspect", "inspect wait")
        return node

    def reaches(self, node: str, target: str, state: str) -> None:
        self.call("PUT", f"/v1/nodes/{node}/states/provision", {"target": target})
        assert until(lambda: self.state(node) == state), self.state(node)

    def state(self, node: str) -> str:
        return str(self.call("GET", f"/v1/nodes/{node}")["provision_state"])

    def set_clock(self, seconds: int) -> None:
        """Set it, and return when the service has noticed and its leader has renewed its lease since then."""
        noted = len(ask(self.directory, _STEPS))
        self.clock.step(seconds)
        assert until(lambda: len(ask(self.directory, _STEPS)) > noted)
        renewed = ask(self.directory, _LEASE)
        assert until(lambda: ask(self.directory, _LEASE) != renewed)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    found = Host(tmp_path)
    yield found
    found.service.end()


STEPS = [(DAY, 0), (1200,), (-1200,)]


@pytest.mark.parametrize("steps", STEPS, ids=str)
def test_no_inspection_fails_because_the_clock_is_set_and_everything_goes_on(
    host: Host, steps: tuple[int, ...]
) -> None:
    nodes = [host.waiting(f"n{number}") for number in range(3)]
    for place, step in enumerate(steps):
        host.set_clock(step)
        nodes.append(host.waiting(f"later-{place}"))  # the queue goes on
        assert {host.state(node) for node in nodes} == {"inspect wait"}
        assert "clock-stepped" in [problem["code"] for problem in host.call("GET", "/v1/status")["problems"]]
    assert ask(host.directory, "SELECT count(*) FROM journal WHERE reason = 'timeout'") == [(0,)]
    assert host.service.alive
    assert host.service.stop() == 0


def test_what_a_process_held_when_its_clock_was_a_day_ahead_is_free_in_seconds(tmp_path: Path) -> None:
    HostClock(tmp_path).step(DAY)
    host = Host(tmp_path)
    try:
        host.waiting("n")
        dead = {member["id"] for member in host.call("GET", "/v1/status")["members"]}
        held = "SELECT holder FROM leases WHERE name LIKE 'periodic/%'"
        host.service.kill()
        host.clock.step(0)
        host.service.start()
        host.service.wait_ready()
        assert until(lambda: dead.isdisjoint(row[0] for row in ask(tmp_path, held)))
        host.waiting("m")
        members = {member["id"]: member["alive"] for member in host.call("GET", "/v1/status")["members"]}
        assert [members[ident] for ident in dead] == [False]
    finally:
        host.service.end()


def test_what_answers_take_is_no_step_and_what_was_set_is_known_to_the_second() -> None:
    clock = DatabaseClock()
    clock.look(1000.0, 0.0, 0.1)
    clock.look(1009.0, 2.0, 8.0)  # anything from 1.9 to 8 s later
    assert clock.set_by == 0.0
    clock.look(1010.0 + DAY, 9.0, 9.1)
    assert clock.set_by == pytest.approx(DAY, abs=10.0)
    clock.look(1011.0, 10.0, 10.1)
    assert clock.set_by == pytest.approx(0.0, abs=10.0)
