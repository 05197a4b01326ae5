"""A log that cannot be written: lines are lost, and nothing else. The real process, real full disks."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ferroscope.config.options import WorkerSettings
from tests.support.installation import configuration
from tests.support.processes import PATIENCE, free_port, until

Start = Callable[..., "Service"]


class Service:
    """``ferroscope all`` in ``directory``, whose standard error is what ``stderr`` makes of it.

    ``within`` is a process whose mount namespace it shall be in.
    """

    def __init__(self, directory: Path, stderr: str, within: int | None) -> None:
        self.port = free_port()
        self._config = config = directory.with_suffix(".conf")
        more = "[worker]\nthreads = 1\n[lease]\nprofile = fast\n"
        config.write_text(configuration(directory, self.port, more, database=f"sqlite:///{directory}/f.db"))
        command = f'exec "$0" -m ferroscope all -c {config} {stderr}'
        self._enter = enter = (
            [] if within is None else ["nsenter", f"--target={within}", "--user", "--mount", "--preserve-credentials"]
        )
        reader, writer = os.pipe()
        os.close(reader)  # nobody reads what is not redirected
        try:
            self.process = subprocess.Popen([*enter, "/bin/sh", "-c", command, sys.executable], stderr=writer)
        finally:
            os.close(writer)

    def get(self, path: str) -> tuple[int, bytes]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as exc:
            return exc.code, exc.read()

    def healthy(self) -> bool:
        try:
            return self.get("/healthcheck")[0] == 200
        except OSError:
            return False

    def works(self) -> bool:
        """Whether it writes its heartbeat, and leads all periodic tasks."""
        return not self.problems() and all(lease["holder"] for lease in self.status()["leases"])

    def status(self) -> Any:
        return json.loads(self.get("/v1/status")[1])

    def problems(self) -> list[str]:
        """Return the codes of what is wrong, in order."""
        return [problem["code"] for problem in self.status()["problems"] if problem["verdict"] == "wrong"]

    def examine(self) -> list[str]:
        """Return the codes of what the doctor says is wrong next to it."""
        command = [*self._enter, sys.executable, "-m", "ferroscope", "doctor", "-c", str(self._config), "-o", "json"]
        done = subprocess.run(command, capture_output=True, check=False, timeout=PATIENCE)
        return [check["code"] for check in json.loads(done.stdout)["checks"] if check["verdict"] == "wrong"]

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)


@pytest.fixture
def serve() -> Iterator[Start]:
    started: list[Service] = []

    def begin(directory: Path, stderr: str, within: int | None = None) -> Service:
        started.append(Service(directory, stderr, within))
        return started[-1]

    yield begin
    for service in started:
        service.process.kill()
        service.process.wait()


@pytest.mark.parametrize("stderr", ["2>/dev/full", "2>&-", ""], ids=["full", "closed", "broken pipe"])
def test_a_service_whose_log_cannot_be_written_works_and_ends_well(serve: Start, tmp_path: Path, stderr: str) -> None:
    service = serve(tmp_path, stderr)
    assert until(service.healthy)
    assert until(service.works)
    # A refused lookup is logged.
    assert service.get("/v1/lookup?addresses=52:54:00:00:00:01")[0] == 404
    assert service.end() == 0


@contextmanager
def mounted(place: Path, options: str) -> Iterator[int]:
    """Mount a disk in memory where only one process sees it, and give that."""
    holder = subprocess.Popen(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c",
         f"mount -t tmpfs -o {options} none {place} && echo there && exec sleep 300"],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert holder.stdout is not None
    assert holder.stdout.readline() == "there\n"
    yield holder.pid
    holder.kill()
    holder.wait()
    holder.stdout.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[int]:
    """Mount a disk of 3 MB on ``tmp_path``."""
    with mounted(tmp_path, "size=3m") as holder:
        yield holder


def test_a_start_on_a_read_only_file_system_ends_with_what_is_wrong(serve: Start, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    with mounted(disk, "ro") as holder:
        service = serve(disk, f"2>{tmp_path}/log", holder)
        assert service.process.wait(PATIENCE) != 0
    said = (tmp_path / "log").read_text()
    assert str(disk / "f.db") in said
    assert "Traceback" not in said


def test_a_full_disk_with_database_and_log_on_it_is_recovered_from(
    serve: Start, tmp_path: Path, small_disk: int
) -> None:
    service = serve(tmp_path, f"2>>{tmp_path}/log", small_disk)
    disk = Path(f"/proc/{small_disk}/root{tmp_path}")
    assert until(service.healthy)
    assert until(service.works)
    for name in ("fill", "log"):  # the log's last block, too
        with (disk / name).open("ab", buffering=0) as file, pytest.raises(OSError, match="No space"):
            file.writelines(itertools.repeat(bytes(512)))
    assert until(lambda: service.problems()[:1] == ["database-full"])
    assert service.process.poll() is None
    assert until(lambda: service.status()["members"][0]["silent_for"] > 2 * WorkerSettings().member_ttl)
    assert service.problems() == ["database-full"], "nothing that follows from it"
    assert service.examine() == ["writing"], "nor does the doctor"
    status, answer = service.get("/healthcheck")
    assert (status, b"no room" in answer) == (503, True)
    metrics = service.get("/metrics")[1].decode()
    assert 'ferroscope_problems{code="database-full",verdict="wrong"} 1.0' in metrics
    (disk / "fill").unlink()
    assert until(service.works)
    assert service.end() == 0
