"""``ferroscope ramdisk`` with a real ramdisk: the checks, the signature, and builds that cannot end."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ferroscope.contrib.ramdisk import programs
from ferroscope.contrib.ramdisk.manifest import RamdiskError
from tests.support import ramdisk
from tests.support.bad_server import a_server_that
from tests.support.processes import HOURS, until

_RUN = [sys.executable, "-m", "ferroscope", "ramdisk"]


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A copy of a ramdisk, to be changed."""
    return Path(shutil.copytree(ramdisk.cached(), tmp_path / "installed"))


def _check(directory: Path, *options: str) -> tuple[int, dict[str, str]]:
    done = subprocess.run([*_RUN, "check", str(directory), "-o", "json", *options], capture_output=True, text=True)
    return done.returncode, {one["code"]: one["verdict"] for one in json.loads(done.stdout)["checks"]}


def test_the_list_says_what_is_installed(installed: Path) -> None:
    done = subprocess.run([*_RUN, "list", str(installed), "-o", "json"], capture_output=True, text=True, check=True)
    (found,) = json.loads(done.stdout)["ramdisks"]
    assert (found["name"], found["arch"]) == ("ipa", "amd64")


def _key(directory: Path, name: str) -> Path:
    path = directory / name
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
    return path


def test_a_signature_is_of_one_key_and_of_one_content(installed: Path, tmp_path: Path) -> None:
    from ferroscope.contrib.ramdisk import signature

    own, other = _key(tmp_path, "own"), _key(tmp_path, "other")
    path = installed / "ipa.manifest.json"
    signature.check_key(own)
    signature.sign(path, own)
    assert _check(installed, "--public-key", f"{own}.pub")[0] == 0
    assert _check(installed, "--public-key", f"{other}.pub")[1]["ramdisk-signature"] == "wrong"
    path.write_bytes(path.read_bytes().replace(b'"cloud"', b'"generic"'))
    assert _check(installed, "--public-key", f"{own}.pub")[1]["ramdisk-signature"] == "wrong"


def test_a_mirror_that_is_not_there_ends_the_build_in_two_lines(tmp_path: Path) -> None:
    done = ramdisk.build(tmp_path / "out", "--kernel", "cloud", "--mirror", "http://127.0.0.1:9/debian")
    assert done.returncode == 1
    asked, *error = done.stderr.splitlines()
    assert asked == "asking http://127.0.0.1:9/debian"
    assert len(error) == 2
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_build_leaves_nothing(tmp_path: Path, number: int) -> None:
    out = tmp_path / "out"
    with a_server_that([]) as port:  # takes requests, and never answers
        mirror = f"http://127.0.0.1:{port}/debian"
        command = [*_RUN, "build", "--kernel", "cloud", "--directory", str(out), "--mirror", mirror]
        with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
            assert until(lambda: port.calls > 0)
            process.send_signal(number)
            assert process.wait() != 0
    assert not out.exists()


def test_a_failed_build_leaves_the_previous_ramdisk(installed: Path) -> None:
    before = {path: path.stat().st_ino for path in installed.rglob("*")}
    assert ramdisk.build(installed, "--kernel", "cloud", "--mirror", "http://127.0.0.1:9/debian").returncode == 1
    assert {path: path.stat().st_ino for path in installed.rglob("*")} == before


def test_a_program_that_does_not_end_is_killed_with_all_that_it_has_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "_END_SECONDS", 0.1)
    started = tmp_path / "started"
    script = f"trap '' TERM; sh -c 'echo $$ >{started}.new; mv {started}.new {started}; exec sleep 1000' & wait; wait"
    runner = programs.ProgramRunner({"PATH": os.environ["PATH"]})

    def interrupt() -> None:
        assert until(started.exists)
        os.kill(os.getpid(), signal.SIGTERM)

    interrupter = threading.Thread(target=interrupt)
    interrupter.start()
    with programs.ends_orderly(), pytest.raises(programs.InterruptedBuildError):
        runner.run(["sh", "-c", script], "waiting")
    interrupter.join()
    assert until(lambda: not Path(f"/proc/{started.read_text().strip()}").exists())


def test_a_program_that_takes_too_long_is_ended() -> None:
    runner = programs.ProgramRunner({"PATH": os.environ["PATH"]})
    with pytest.raises(RamdiskError, match="sleep has not ended after") as failed:
        runner.run(["sleep", str(HOURS)], "waiting", seconds=0.1)
    assert "--verbose" in failed.value.advice


def test_what_a_killed_build_has_started_ends(tmp_path: Path) -> None:
    script = f"sh -c 'echo $$ >{tmp_path}/new; mv {tmp_path}/new {tmp_path}/started; exec sleep 1000' & wait"
    where = "ferroscope.contrib.ramdisk.programs"
    build = f"import sys; from {where} import ProgramRunner; ProgramRunner({{}}).run(sys.argv[1:], '')"
    process = subprocess.Popen([sys.executable, "-c", build, "sh", "-c", script])
    assert until((tmp_path / "started").exists)
    process.kill()
    process.wait()
    assert until(lambda: not Path(f"/proc/{(tmp_path / 'started').read_text().strip()}").exists())
