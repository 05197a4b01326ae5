"""The commands of the tutorial on the first hour, in order, with a real service and 200 simulated machines."""

from __future__ import annotations

import csv
import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

import pytest
import urllib3

from bench.service import executable
from tests.integration.examples.test_secure_the_service import commands
from tests.support.installation import Played
from tests.support.processes import free_port, until
from tests.unit.cli.running import NO_CREDENTIALS
from tests.unit.docs.pages import page

_PASSWORD: Final = "Canary-of-alice"
# They tell of machines with a problem, or of a difference, by exit code 1.
_FAIL: Final = ("node manage --all", "inspect --state", "inventory diff")
_RUN_ON: Final = ("ferroscope all ", "ferroscope sim ")


class Hour:
    """A directory in which somebody follows the page; its ports are free ones."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.port, self.bmcs = directory, free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        shown = {name: value for name, value in os.environ.items() if name not in NO_CREDENTIALS}
        path = f"{Path(executable()).parent}{os.pathsep}{os.environ['PATH']}"
        self.environment = shown | {"FERROSCOPE_URL": self.url, "PATH": path, "COLUMNS": "160", "HOME": str(directory)}
        self.running: list[Played] = []
        self.said: dict[str, str] = {}
        self.seconds: dict[str, float] = {}

    def follow(self, command: str) -> None:
        """Run a line of the page."""
        own = command.replace("127.0.1.7:6390", f"127.0.1.7:{self.bmcs}")
        if own.startswith("export "):
            name, _, value = own.removeprefix("export ").partition("=")
            self.environment[name] = value
        elif own.startswith(_RUN_ON):
            more = ["--port", str(self.bmcs)] if own.startswith("ferroscope sim") else []
            words = ["env", *(f"{name}={value}" for name, value in self.environment.items()), *own.split(), *more]
            self.running.append(Played(own.split()[1], self.directory, words, cwd=self.directory))
            self._wait(own)
        else:
            began = time.monotonic()
            given = f"{_PASSWORD}\n" if " setup " in own else ""
            done = subprocess.run(
                ["bash", "-c", own],
                input=given,
                cwd=self.directory,
                env=self.environment,
                capture_output=True,
                text=True,
                check=False,
            )
            self.seconds[command] = time.monotonic() - began
            self.said[command] = done.stdout
            expected = (1,) if any(part in own for part in _FAIL) else (0,)
            if " setup " in own:
                expected = (0, 1)  # a port of this host may be taken
            assert done.returncode in expected, f"{own}: {done.returncode}\n{done.stdout}{done.stderr}"
            assert _PASSWORD not in done.stdout + done.stderr
        if " setup " in own:
            file = self.directory / "ferroscope.conf"
            ports = f"[api]\nbare_metal_port = {self.port}\nintrospection_port = 0\n"
            file.write_text(file.read_text().replace("[api]\n", ports))

    def _wait(self, command: str) -> None:
        """Return when what runs on is ready."""
        if command.startswith("ferroscope all"):
            self.running[-1].wait_ready()
        else:
            assert until(lambda: not self.running[-1].alive or "end with Ctrl-C" in self.running[-1].said())
            assert self.running[-1].alive, self.running[-1].said()


@pytest.fixture
def hour(tmp_path: Path) -> Iterator[Hour]:
    made = Hour(tmp_path)
    yield made
    for played in reversed(made.running):
        played.end()


def test_a_newcomer_finds_the_five_bad_machines_and_the_missing_module(hour: Hour) -> None:
    followed = [command for command, _ in commands(page("docs/tutorial/first-hour.md"))]
    for command in followed:
        hour.follow(command)

    def of(part: str) -> str:
        (text,) = [text for command, text in hour.said.items() if part in command]
        return text

    assert "200" in of("import machines.csv --dry-run")
    unreachable, failed = _names(of("--state enroll")), _names(of("--failed"))
    assert unreachable == ["sim-0007", "sim-bmc-refused-1"]
    assert failed == ["sim-no-arch-1", "sim-power-fail-1", "sim-ramdisk-error-1"]
    changed = of("inventory diff")
    assert "DIMM" in changed, changed
    with (hour.directory / "fleet.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 200
    shown = _fleet_page(hour.url)
    assert all(reason in shown for reason in ("bmc-refused", "ramdisk-error", "invalid-inventory"))
    for command, seconds in hour.seconds.items():
        print(f"{seconds:6.1f} s  {command}")


def _names(listed: str) -> list[str]:
    return [line.split()[0] for line in listed.splitlines() if line.startswith("sim-")]


def _fleet_page(url: str) -> str:
    """Log in as a browser does, and return the first page."""
    with urllib3.PoolManager(retries=False) as http:
        form = http.request("GET", f"{url}/ui/login")
        csrf = re.findall(r'name="csrf" value="([0-9a-f]{64})"', form.data.decode())[0]
        answer = http.request(
            "POST",
            f"{url}/ui/login",
            body=urlencode({"csrf": csrf, "user": "alice", "password": _PASSWORD}),
            headers={
                "Content-Type": "application/x-www-form-urlencoded",
                "Origin": url,
                "Cookie": form.headers["Set-Cookie"].partition(";")[0],
            },
            redirect=False,
        )
        assert answer.status in (302, 303), answer.data
        session = answer.headers["Set-Cookie"].partition(";")[0]
        return http.request("GET", f"{url}/ui", headers={"Cookie": session}).data.decode()
