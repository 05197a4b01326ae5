"""What the test run starts as a fork is a process as any other, and only our own commands are forked."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bench.service import executable
from tests import ROOT
from tests.support.forking import ForkingPopen
from tests.support.processes import PATIENCE, free_port, until
from tests.support.pxe.netns import Netns

PROGRAMS = {"script": [executable()], "module": [sys.executable, "-m", "ferroscope"]}
SIMULATOR = [executable(), "sim", "--nodes", "1", "--port", "0"]


@pytest.fixture(params=sorted(PROGRAMS))
def program(request: pytest.FixtureRequest) -> list[str]:
    return PROGRAMS[request.param]


def is_fork(process: subprocess.Popen[str]) -> bool:
    return b"fork_server" in Path(f"/proc/{process.pid}/cmdline").read_bytes()


def test_a_signal_ends_it_and_is_its_exit_code(program: list[str]) -> None:
    for number, code in ((signal.SIGTERM, 0), (signal.SIGKILL, -signal.SIGKILL)):
        with ForkingPopen([*program, *SIMULATOR[1:]], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert "1 machine" in process.stdout.readline()
            assert is_fork(process)
            assert process.poll() is None
            process.send_signal(number)
            assert process.wait(PATIENCE) == code
            assert not Path(f"/proc/{process.pid}").exists()


@pytest.mark.parametrize(
    "more",
    [{"env": os.environ | {"PYTHONPATH": "/nonexistent"}}, {"preexec_fn": lambda: None}, {"umask": 0o077}],
    ids=lambda more: next(iter(more)),
)
def test_what_a_fork_could_not_have_is_started_anew(more: dict[str, object]) -> None:
    with ForkingPopen(SIMULATOR, stdout=subprocess.PIPE, text=True, **more) as process:
        assert process.stdout is not None
        assert "1 machine" in process.stdout.readline()
        assert not is_fork(process)
        process.terminate()
        assert process.wait(PATIENCE) == 0


def test_it_dies_with_its_test_run() -> None:
    """Also where that is killed: then nobody reads what the fork server is asked, which ends it."""
    code = (
        "import sys, time; from tests.support.forking import ForkingPopen; "
        "from tests.support.processes import die_with_parent\n"
        f"print(ForkingPopen({[*SIMULATOR[:-1], str(free_port())]!r}, preexec_fn=die_with_parent).pid, flush=True)\n"
        "time.sleep(100)"
    )
    root = ROOT
    with subprocess.Popen([sys.executable, "-c", code], cwd=root, stdout=subprocess.PIPE, text=True) as tests:
        assert tests.stdout is not None
        pid = int(tests.stdout.readline())
        tests.kill()
    assert until(lambda: not Path(f"/proc/{pid}").exists())


def test_a_fork_may_run_in_another_network(request: pytest.FixtureRequest) -> None:
    space = Netns("forked")
    request.addfinalizer(space.close)
    with ForkingPopen([*space.prefix, *SIMULATOR], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "1 machine" in process.stdout.readline()
        assert is_fork(process)
        assert Path(f"/proc/{process.pid}/ns/net").stat().st_ino == Path(f"/run/netns/{space.name}").stat().st_ino
        assert [link.name for link in (Path(f"/proc/{process.pid}/root") / "sys/class/net").iterdir()] == ["lo"]
        process.terminate()
        assert process.wait(PATIENCE) == 0
