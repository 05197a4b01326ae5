"""Whole programs: the simulator, the demo, a service that dies under a watch. Real signals, real exit codes."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ferroscope_client.errors import Exit
from ferroscope_sim.demo.demo_command import GO_ON, own_command
from tests.support.processes import PATIENCE, free_port, is_running, until
from tests.system.cli.console import Shell

FERROSCOPE = [sys.executable, "-m", "ferroscope"]


class Program:
    """``ferroscope`` with ``arguments``, killed at the end whatever happened."""

    def __init__(self, directory: Path, *arguments: str, **environment: str) -> None:
        self.out, self.err = directory / "out", directory / "err"
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen(
                [*FERROSCOPE, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env={**os.environ, "TMPDIR": str(directory), **environment},
                cwd=directory,
            )

    def printed(self, text: str) -> bool:
        return text in self.out.read_text() + self.err.read_text()

    def children(self) -> list[int]:
        pid = self.process.pid
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[list[Program]]:
    """Give the list of programs to be ended."""
    started: list[Program] = []
    yield started
    for program in started:
        program.process.kill()
        program.process.wait()


def start(programs: list[Program], directory: Path, *arguments: str, **environment: str) -> Program:
    directory.mkdir(exist_ok=True)
    programs.append(Program(directory, *arguments, **environment))
    return programs[-1]


def test_a_simulator_takes_a_free_port_where_the_usual_one_is_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        usual = taken.getsockname()[1]
        program = f"import ferroscope_sim.sim_command as cli; cli._DEFAULT_PORT = {usual}; cli.sim(['--nodes', '1'])"
        with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            output = process.stdout.readline() + process.stdout.readline()
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == 0
    assert f"port {usual} is in use" in output
    found = re.search(r"1 machine at 127\.0\.0\.1:(\d+)", output)
    assert found is not None
    assert int(found[1]) != usual


@pytest.mark.parametrize(("subnet", "starts"), [("20", False), ("0", True)])
def test_bmcs_with_an_address_each_need_their_port_at_every_address(subnet: str, starts: bool) -> None:
    with socket.create_server(("127.0.0.2", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = [*FERROSCOPE, "sim", "--nodes", "1", "--port", port, "--subnet", subnet]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            if starts:
                assert process.stdout is not None
                assert f"127.0.0.1:{port}" in process.stdout.readline()
                process.send_signal(signal.SIGTERM)
            found = process.communicate(timeout=PATIENCE)[1]
    assert process.returncode == (0 if starts else Exit.FAILURE)
    assert (f"port {port} on all addresses" in found) is not starts
    assert ("--subnet 0" in found) is not starts


def test_the_demo_shows_what_the_killed_worker_held_and_leaves_nothing(programs: list[Program], tmp_path: Path) -> None:
    demo = start(programs, tmp_path, "demo", "--nodes", "12")
    assert demo.process.wait(PATIENCE) == 0, demo.out.read_text() + demo.err.read_text()
    output = demo.out.read_text()
    killed = re.search(r"SIGKILL to (worker-\d) \(pid (\d+)\) with \d+ of 12 done. It held (\d+) request", output)
    assert killed is not None, output
    assert "All 12 finished." in output
    assert "No machine was booted twice: 12 boots for 12 inspections." in output
    section = output.partition(f"Requests of {killed[1]}, and the worker that took over\n")[2].partition(
        "\nNo machine"
    )[0]
    rows = section.splitlines()[1:]
    assert len(rows) == int(killed[3])
    for row in rows:
        name, request, by, after, _, state = row.split()
        assert name.startswith("sim-00")
        assert request in ("inspect", "continue", "finish")
        assert by.startswith("worker@")
        assert not by.endswith(f":{killed[2]}")
        assert 0 < float(after) < PATIENCE
        assert state == "finished"
    assert "delivered again" in output.partition("Its timeline")[2]
    assert "ferroscope inspect --all --watch" in output
    assert demo.err.read_text() == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["err", "out"]


def test_the_demo_kills_a_worker_at_work_in_a_small_fleet_too(programs: list[Program], tmp_path: Path) -> None:
    demo = start(programs, tmp_path, "demo", "--nodes", "1")
    assert demo.process.wait(PATIENCE) == 0, demo.out.read_text() + demo.err.read_text()
    assert re.search(r"SIGKILL to worker-\d \(pid \d+\) with 0 of 1 done. It held \d+ request", demo.out.read_text())
    assert demo.printed("1 boot for 1 inspection.")


def test_the_commands_to_go_on_with_work_as_they_are_printed(programs: list[Program], tmp_path: Path) -> None:
    """Only the ports and the place of the database are the test's."""
    lines = GO_ON.format(ferroscope="ferroscope").splitlines()
    serve, sim, *commands = [line.split()[1:] for line in lines if line.startswith("    ferroscope ")]
    port = str(free_port())
    settings = {
        "OS_API__BARE_METAL_PORT": port,
        "OS_API__INTROSPECTION_PORT": str(free_port()),
        "OS_DATABASE__CONNECTION": f"sqlite:///{tmp_path}/f.db",
        "OS_DRIVERS__COMMAND_TIMEOUT": "0.5",
        "FERROSCOPE_URL": f"http://127.0.0.1:{port}",
    }
    fleet = start(programs, tmp_path / "sim", *sim, "--port", "0", "--boot-delay", "0.2", **settings)
    start(programs, tmp_path / "all", *serve, **settings)
    assert until(lambda: fleet.printed("enrolled: 50 new")), fleet.err.read_text()
    assert "Retrying" not in fleet.err.read_text()
    for number, command in enumerate(commands):
        program = start(programs, tmp_path / str(number), *command, **settings)
        if command[0] == "sim":
            assert until(lambda program=program: program.printed("enrolled: 2 new")), program.err.read_text()
            continue
        bad = "sim-power-fail-2" in command
        assert program.process.wait(PATIENCE) == (Exit.FAILURE if bad else 0), program.err.read_text()
    assert program.printed("bmc-unreachable")
    assert program.printed("bmc-refused")


def test_the_program_is_named_as_it_can_be_started_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ours = tmp_path / "ferroscope"
    ours.write_text("#!/bin/sh\n")
    ours.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert own_command(str(ours)) == "ferroscope"
    monkeypatch.setenv("PATH", "/nowhere")
    assert own_command(".venv/bin/ferroscope") == ".venv/bin/ferroscope"
    assert own_command("/usr/lib/ferroscope/__main__.py").endswith(" -m ferroscope")


def test_a_demo_that_fails_says_why_and_keeps_its_logs(programs: list[Program], tmp_path: Path) -> None:
    demo = start(programs, tmp_path, "demo", "--nodes", "12")
    assert until(lambda: demo.printed("API: http://"))
    victims = demo.children()
    os.kill(victims[-1], signal.SIGKILL)
    assert demo.process.wait(PATIENCE) == Exit.FAILURE
    assert "worker-2" in demo.err.read_text()
    kept = re.search(r"the logs and the database are in (\S+)", demo.err.read_text())
    assert kept is not None
    assert {"api.log", "worker-1.log", "worker-2.log", "ferroscope.db"} <= {
        path.name for path in Path(kept[1]).iterdir()
    }
    assert not [pid for pid in victims if Path(f"/proc/{pid}").exists()]


def test_an_interrupted_demo_cleans_up(programs: list[Program], tmp_path: Path) -> None:
    demo = start(programs, tmp_path, "demo")
    assert until(lambda: demo.printed("API: http://"))
    players = demo.children()
    assert len(players) == 3
    demo.process.send_signal(signal.SIGINT)
    assert demo.process.wait(PATIENCE) == Exit.INTERRUPTED
    assert not [pid for pid in players if Path(f"/proc/{pid}").exists()]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["err", "out"]


def test_no_process_outlives_a_demo_that_is_killed(programs: list[Program], tmp_path: Path) -> None:
    demo = start(programs, tmp_path, "demo")
    assert until(lambda: demo.printed("API: http://"))
    players = demo.children()
    demo.process.kill()
    demo.process.wait()
    assert until(lambda: not [pid for pid in players if is_running(pid)])


def test_a_watch_survives_a_service_that_is_killed_and_started_again(programs: list[Program], tmp_path: Path) -> None:
    url, service = _service(programs, tmp_path / "first")
    fleet = ("--nodes", "6", "--port", "0", "--api", url, "--enroll", "--boot-delay", "2", "--time-scale", "0.1")
    sim = start(programs, tmp_path / "sim", "sim", *fleet)
    assert until(lambda: sim.printed("enrolled: 6 new")), sim.err.read_text()
    watch = start(
        programs, tmp_path / "watch", "inspect", "--all", "--watch", "--timeout", f"{PATIENCE:.0f}", "--url", url
    )
    assert until(lambda: watch.printed("inspect wait"))
    service.process.kill()
    service.process.wait()
    time.sleep(1)  # long enough for looks that find nobody, and for callbacks that do
    start(programs, tmp_path / "first", "all", "--simulator", "-c", str(tmp_path / "first" / "ferroscope.conf"))
    assert watch.process.wait(PATIENCE) == 0, watch.out.read_text() + watch.err.read_text()
    assert watch.printed("6 finished")


def test_a_watched_status_tells_of_each_change(programs: list[Program], tmp_path: Path) -> None:
    url, _ = _service(programs, tmp_path / "service")
    status = start(programs, tmp_path / "status", "status", "--watch", "--url", url)
    assert until(lambda: status.printed("no nodes"))
    Shell(url)("node", "create", "--driver", "fake-hardware", "n1", check=0)
    assert until(lambda: status.printed("1 enroll"))
    status.process.send_signal(signal.SIGINT)
    assert status.process.wait(PATIENCE) == Exit.INTERRUPTED
    lines = [line.split("  ", 1)[1] for line in status.out.read_text().splitlines()]
    assert [line for line in lines if line in ("no nodes", "1 enroll")] == ["no nodes", "1 enroll"]
    problems = [problem["summary"] for problem in Shell(url).json("status")["problems"]] or ["no problems"]
    assert {problem: lines.count(problem) for problem in problems} == dict.fromkeys(problems, 1)


def test_status_reports_a_broker_that_is_down_and_the_service_goes_on(programs: list[Program], tmp_path: Path) -> None:
    broker = f"[bus]\ntransport_url = rabbit://user:hunter2@127.0.0.1:{free_port()}/\n"
    url, _ = _service(programs, tmp_path / "service", broker)
    shell = Shell(url)
    shell("node", "create", "--driver", "fake-hardware", "n1", check=0)
    assert until(lambda: "bus-down" in shell("status", "-o", "json").stdout)
    shown = shell("status").output
    assert "RabbitMQ" in shown
    assert "hunter2" not in shown


def _service(programs: list[Program], directory: Path, extra: str = "") -> tuple[str, Program]:
    directory.mkdir()
    port = free_port()
    configuration = directory / "ferroscope.conf"
    configuration.write_text(
        f"[api]\nhost = 127.0.0.1\nbare_metal_port = {port}\nintrospection_port = {free_port()}\n"
        f"[database]\nconnection = sqlite:///{directory / 'ferroscope.db'}\n"
        f"[worker]\nmember_ttl = 1\n{extra}"
    )
    program = start(programs, directory, "all", "--simulator", "-c", str(configuration))
    url = f"http://127.0.0.1:{port}"
    assert until(lambda: Shell(url)("status").exit_code == 0), program.err.read_text()
    return url, program
