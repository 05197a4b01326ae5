"""The file system of a running service turns read-only, and back: it says so, loses nothing, and goes on by itself."""

from __future__ import annotations

import urllib.error
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from tests.support.changeable_disk import Disk, mounted
from tests.support.processes import until
from tests.support.releases import Site
from tests.system.service.test_lost_log import Service

WAITING: Final = [f"waiting-{number}" for number in range(4)]
QUEUED: Final = [f"queued-{number}" for number in range(4)]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    with mounted(tmp_path) as found:
        yield found


@pytest.fixture
def site(tmp_path: Path, disk: Disk) -> Iterator[Site]:
    found = Site(tmp_path, f"sqlite:///{disk.place}/f.db", within=disk.within)
    yield found
    found.close()


def status_of(site: Site, method: str, path: str, body: object = None) -> int:
    try:
        site.call(method, path, body)
    except urllib.error.HTTPError as exc:
        return exc.code
    return 200


def test_inspections_go_on_when_the_file_system_is_writable_again(site: Site, disk: Disk) -> None:
    service = site.new("all", "all")
    service.wait_ready()
    macs = site.enroll([*WAITING, *QUEUED])
    site.begin(WAITING)
    site.reach(WAITING, "inspect wait")
    disk.turn_read_only()

    # More at once than before: connections that are opened now can only read, also afterwards.
    def change(number: int) -> int:
        return status_of(site, "POST", "/v1/nodes", {"name": f"refused-{number}", "driver": "fake-hardware"})

    def look(_number: int) -> int:
        return status_of(site, "GET", "/v1/nodes?limit=1000")

    def note(number: int) -> int:
        path = f"/v1/nodes/{WAITING[number % 4]}"
        return status_of(site, "PATCH", path, [{"op": "add", "path": "/extra/seen", "value": number}])

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda number: (look(number), change(number)), range(64)))
    assert set(answers) == {(200, 503)}
    with pytest.raises(urllib.error.HTTPError, match="503"):
        site.call_back(macs[WAITING[0]])
    assert until(lambda: status_of(site, "GET", "/healthcheck") == 503)
    assert until(lambda: "Read-only file system" in service.output()), service.output()
    assert "Traceback" not in service.output()
    assert service.alive

    disk.turn_writable()
    assert until(lambda: status_of(site, "GET", "/healthcheck") == 200)
    # None of them was kept from a time when it could only read.
    with ThreadPoolExecutor(16) as pool:
        assert set(pool.map(note, range(64))) == {200}
    site.begin(QUEUED)
    site.reach([*WAITING, *QUEUED], "inspect wait")
    for name in (*WAITING, *QUEUED):
        site.call_back(macs[name])
    site.reach([*WAITING, *QUEUED], "manageable")
    assert set(site.states()) == {*WAITING, *QUEUED}
    assert service.stop() == 0


def test_a_log_on_a_disk_that_turns_read_only_loses_its_lines_only(tmp_path: Path, disk: Disk) -> None:
    service = Service(disk.place, f"2>>{disk.place}/log", disk.pid)
    try:
        assert until(service.healthy)
        assert until(service.works)
        disk.turn_read_only()
        assert until(lambda: not service.works())
        disk.turn_writable()
        assert until(service.works)
        before = (tmp_path / "files/log").stat().st_size
        assert service.end() == 0
        assert (tmp_path / "files/log").stat().st_size > before
    finally:
        service.process.kill()
        service.process.wait()
