"""What is wrong, in the words of ``status``, ``top`` and ``explain``: of real processes that fail, and are killed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ferroscope.cli.exits import Exit
from tests.support.installation import Played, configuration
from tests.support.processes import free_port, until
from tests.system.cli.console import Shell

Role = dict[str, Played]


@pytest.fixture
def roles(tmp_path: Path, database_url: str) -> Iterator[tuple[Role, Shell]]:
    """Give an api and a worker, and the command line of the api."""
    port, conf = free_port(), tmp_path / "f.conf"
    more = "[drivers]\nenabled = sim,fake-hardware\ncommand_timeout = 2\n[worker]\nmember_ttl = 3\n"
    conf.write_text(configuration(tmp_path, port, more, database=database_url))
    played = {
        role: Played(role, tmp_path, [sys.executable, "-m", "ferroscope", role, "-c", str(conf)])
        for role in ("api", "worker")
    }
    try:
        for process in played.values():
            process.wait_ready()
        yield played, Shell(f"http://127.0.0.1:{port}")
    finally:
        for process in played.values():
            process.end()


def test_a_verification_that_failed_and_a_request_that_nobody_works_on_are_told_everywhere(
    roles: tuple[Role, Shell],
) -> None:
    processes, shell = roles
    silent = ("-d", f"sim_address=127.0.0.1:{free_port()}", "-d", "sim_node=mute")
    shell("node", "create", "mute", "--driver", "sim", *silent, check=0)
    shell("node", "manage", "mute", "--wait", check=Exit.FAILURE)
    reason = shell.json("explain", "mute")["reason"]
    (problem,) = (one for one in shell.json("status")["problems"] if one["code"] == "machine-errors")
    assert (problem["search"], problem["summary"].endswith(": mute")) == (f"reason=={reason}", True)
    assert any(line.endswith(f"ferroscope search reason=={reason}") for line in shell.lines("top", "--once"))
    assert [node["name"] for node in shell.json("search", f"reason=={reason}")] == ["mute"]

    processes["worker"].kill()
    shell("node", "create", "waits", "--driver", "fake-hardware", check=0)
    shell("node", "manage", "waits", check=0)
    assert until(lambda: shell.json("explain", "waits")["obstacle"] == "no-worker")
    explained = shell.json("explain", "waits")
    assert "ferroscope worker" in explained["hint"]
    assert explained["commands"][0] == "ferroscope worker"
    shell("node", "create", "late", "--driver", "fake-hardware", check=0)
    told = shell("node", "manage", "late", "--wait", "--timeout", "0.1", check=Exit.TIMED_OUT)
    assert "Start one: ferroscope worker" in " ".join(told.output.split())
    problems = shell.json("status", check=Exit.FAILURE)["problems"]
    assert [one["code"] for one in problems] == ["no-worker", "member-dead", "machine-errors"]
    processes["worker"].start()
    assert until(lambda: shell.json("node", "show", "waits")["provision_state"] == "manageable")
    assert shell.json("explain", "waits")["obstacle"] is None
