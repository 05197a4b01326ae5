"""Collectors as the ramdisk runs them: its real programs, with scripts that do harm, and lists from a real server."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support import ramdisk
from tests.support.bad_server import a_server_that
from tests.support.rows import each
from tests.support.speed import slowness

# How long the scripts of a test may take together, unless it is about that.
_ENOUGH_SECONDS: Final = 600.0
_GOOD: Final = "#!/bin/sh\necho '{}'\n"
# In the command line of what a script leaves behind.
_LEFT_SECONDS: Final = f"7777.{os.getpid()}"


class Machine:
    """A ramdisk with its programs and the home of root, and a web server with a list and its scripts."""

    def __init__(self, directory: Path, url: str) -> None:
        self.url, self.served = url, directory / "served"
        self.programs = directory / "programs"
        shutil.copytree(ramdisk.PROGRAMS, self.programs)
        self.home, self.key = directory / "home", directory / "key"
        self.signers = self.home / ".ssh" / "authorized_keys"
        self.signers.parent.mkdir(parents=True)
        ramdisk.make_key(self.key)
        self.signers.write_text("# of the operators\n\n" + Path(f"{self.key}.pub").read_text())

    def install(self, **scripts: str) -> None:
        """Add collectors to those of the ramdisk."""
        for name, text in scripts.items():
            path = self.programs / "collectors" / name
            path.write_text(text)
            path.chmod(0o755)

    def collect(self, *names: str, seconds: float = _ENOUGH_SECONDS, path: Path | None = None) -> dict[str, Any]:
        """Return the results; ``path``: where programs are found first."""
        search_path = f"{path}:{os.environ['PATH']}" if path else os.environ["PATH"]
        done = subprocess.run(
            [sys.executable, self.programs / "run-collectors", ",".join(names), str(seconds)],
            env=os.environ | {"HOME": str(self.home), "PATH": search_path}, stdout=subprocess.PIPE, check=True,
        )  # fmt: skip
        results: dict[str, Any] = json.loads(done.stdout)
        return results


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    (tmp_path / "served").mkdir()
    with ramdisk.serving(tmp_path / "served") as port:
        yield Machine(tmp_path, f"http://127.0.0.1:{port}/list")


def _is_left() -> bool:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if _LEFT_SECONDS.encode() in path.read_bytes():
                return True
        except OSError:
            continue  # it has ended
    return False


def test_no_script_harms_the_next_one(machine: Machine) -> None:
    hostile = {
        "fails": "#!/bin/sh\necho broken >&2\nexit 3\n",
        "floods": "#!/bin/sh\nyes\n",
        "complains": "#!/bin/sh\nyes | head -c 30000000 >&2\necho the end >&2\nexit 1\n",
        "zeros": "#!/bin/sh\nhead -c 60000 /dev/zero\n",
        "leaves": f"#!/bin/sh\nfor n in 1 2 3; do setsid sleep {_LEFT_SECONDS} & done\necho '{{}}'\n",
        "kills": "#!/bin/sh\nkill -9 -1\nkill -9 $$\n",
        "empty": "#!/nowhere\n",
    }
    machine.install(**hostile, good=_GOOD)
    results = machine.collect(*hostile, "good")
    assert list(results) == [*hostile, "good"]
    assert results["good"] | {"seconds": 0} == {"exit_code": 0, "seconds": 0, "output": "{}\n", "error": ""}
    assert (results["fails"]["exit_code"], results["fails"]["error"]) == (3, "broken")
    assert (results["floods"]["exit_code"], results["floods"]["output"]) == (None, "")
    assert results["complains"]["error"].endswith("the end")
    assert len(results["complains"]["error"]) <= 2000
    assert results["zeros"]["output"] == ""
    assert results["leaves"]["output"] == "{}\n"
    assert results["empty"]["exit_code"]
    assert all(results[name]["error"] for name in ("floods", "zeros", "empty"))
    assert len(json.dumps(results)) < 300_000
    assert not _is_left()


def test_a_script_that_does_not_end_is_killed_and_leaves_time_to_the_next_one(machine: Machine) -> None:
    forks = f"sleep {_LEFT_SECONDS}"
    machine.install(hangs=f"#!/bin/sh\ntrap '' TERM\nsetsid {forks} &\n{forks}\n", good=_GOOD)
    results = machine.collect("hangs", "good", seconds=6 * slowness())
    assert (results["hangs"]["exit_code"], results["good"]["exit_code"]) == (None, 0)
    assert "did not end" in results["hangs"]["error"]
    assert not _is_left()


def test_a_signed_list_is_run_beside_the_collectors_of_the_ramdisk(machine: Machine) -> None:
    machine.install(good=_GOOD)
    ramdisk.publish(machine.served, machine.key, fans="#!/bin/sh\necho '{\"fans\": 4}'\n", leds=_GOOD)
    results = machine.collect("good", machine.url, "unknown", "../agent")
    assert {name: result["exit_code"] for name, result in results.items()} == {
        "good": 0, "fans": 0, "leds": 0, "unknown": None, "agent": None,
    }  # fmt: skip
    assert results["fans"]["output"] == '{"fans": 4}\n'


def test_nothing_is_run_that_nobody_has_signed(machine: Machine, tmp_path: Path) -> None:
    served, key, ran = machine.served, machine.key, tmp_path / "ran"
    script = f"#!/bin/sh\ntouch {ran}\n"
    text = ramdisk.publish(served, key, fans=script)
    signature = (served / "list.sig").read_bytes()

    ramdisk.publish(served, key, fans=f"{script}echo changed\n")
    (served / "list.sig").write_bytes(signature)
    assert "has signed" in machine.collect(machine.url)["list"]["error"]

    (served / "list").write_text(text)  # only the script differs
    assert "SHA-256" in machine.collect(machine.url)["fans"]["error"]

    ramdisk.publish(served, key, fans=script)
    ramdisk.make_key(tmp_path / "foreign")
    ramdisk.sign_list(served, text, tmp_path / "foreign")
    assert "has signed" in machine.collect(machine.url)["list"]["error"]

    ramdisk.sign_list(served, text, key, "file")
    assert "has signed" in machine.collect(machine.url)["list"]["error"]

    (served / "list.sig").unlink()
    assert "404" in machine.collect(machine.url)["list"]["error"]

    ramdisk.sign_list(served, text, key)
    keys = machine.signers.read_text()
    machine.signers.unlink()
    assert "--ssh-key" in machine.collect(machine.url)["list"]["error"]
    assert not ran.exists()

    machine.signers.write_text(keys)
    assert machine.collect(machine.url)["fans"]["exit_code"] == 0
    assert ran.exists()


def test_a_list_that_cannot_be_used_is_told_from_its_collectors(machine: Machine) -> None:
    machine.install(good=_GOOD)
    for text, words in (
        ("".join(f"{number:064} script-{number}\n" for number in range(9)).replace(" s", "  s"), "more than 8"),
        (f"{0:064}  ../agent\n", "not a line"),
        ("<html>\n", "not a line"),
    ):
        ramdisk.sign_list(machine.served, text, machine.key)
        results = machine.collect(machine.url, "good")
        assert words in results["list"]["error"]
        assert (list(results), results["good"]["exit_code"]) == (["list", "good"], 0)


def test_no_server_keeps_the_inspection_or_fills_the_memory(machine: Machine) -> None:
    machine.install(good=_GOOD)
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 9999999999\r\n\r\n"
    with a_server_that(itertools.chain([head], itertools.repeat(bytes(1 << 20)))) as port:
        assert "bytes" in machine.collect(f"http://127.0.0.1:{port}/list")["list"]["error"]
    with a_server_that([head], pause=3600.0) as port:
        results = machine.collect(f"http://127.0.0.1:{port}/list", "good", seconds=8 * slowness())
        assert ("did not end" in results["list"]["error"], results["good"]["exit_code"]) == (True, 0)


@each(
    ("disks", "verdicts", "code"),
    [
        ({}, {}, 0),
        ({"/dev/sda": True, "/dev/sdb": None}, {"/dev/sda": "passed", "/dev/sdb": "unknown"}, 0),
        ({"/dev/sda": True, "/dev/nvme0": False}, {"/dev/sda": "passed", "/dev/nvme0": "failed"}, 1),
    ],
)
def test_smart_has_the_verdict_of_each_disk(
    machine: Machine, tmp_path: Path, disks: dict[str, bool | None], verdicts: dict[str, str], code: int
) -> None:
    """The form of smartctl's JSON: https://www.smartmontools.org/browser/trunk/smartmontools/smartctl.cpp."""
    program = tmp_path / "bin" / "smartctl"
    program.parent.mkdir(exist_ok=True)
    devices = [{"name": name, "info_name": name, "type": "sat", "protocol": "ATA"} for name in disks]
    answers = {
        name: {"model_name": "Disk", "serial_number": "S1"}
        | ({} if passed is None else {"smart_status": {"passed": passed}})
        for name, passed in disks.items()
    }
    answers["--scan-open"] = {"devices": devices} if devices else {}
    program.write_text(f"#!/usr/bin/python3\nimport json, sys\nprint(json.dumps({answers!r}[sys.argv[-1]]))\n")
    program.chmod(0o755)
    result = machine.collect("smart", path=program.parent)["smart"]
    assert (json.loads(result["output"]), result["exit_code"]) == (verdicts, code)
    assert ("serial number S1" in result["error"]) is bool(code)


@each(("code", "failed"), [(0, False), (1, False), (4, True)])
def test_memory_tells_errors_from_memory_that_it_did_not_get(
    machine: Machine, tmp_path: Path, code: int, failed: bool
) -> None:
    program = tmp_path / "bin" / "memtester"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f"#!/bin/sh\nexit {code}\n")
    program.chmod(0o755)
    result = machine.collect("memory", path=program.parent)["memory"]
    data = json.loads(result["output"])
    assert (bool(data["failed"]), bool(data["tested_mib"])) == (failed, code != 1)
    assert result["exit_code"] == (1 if code else 0)


class _Inspector:
    """The agent's module that calls back."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []

    def call_inspector(self, data: dict[str, Any], _failures: object) -> None:
        self.sent.append(data)


def test_the_agent_calls_back_with_the_results_whatever_becomes_of_them(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = ramdisk.load_agent()
    monkeypatch.setattr(agent, "RUN_COLLECTORS", machine.programs / "run-collectors")
    machine.install(good=_GOOD)
    sent = []
    for parameters in (
        {"ferroscope.collectors": "good"},
        {"ferroscope.collectors": ""},
        {"ferroscope.collectors": "good", "ferroscope.collectors-seconds": "many"},
    ):
        inspector = _Inspector()
        agent.run_collectors(inspector, parameters)
        inspector.call_inspector({"inventory": {}}, None)
        (data,) = inspector.sent
        assert data["inventory"] == {}
        sent.append(data["collectors"])
    assert sent[0]["good"]["exit_code"] == 0
    assert sent[1] == {}
    assert "many" in sent[2]["run-collectors"]["error"]
