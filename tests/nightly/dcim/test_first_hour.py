"""The commands of the tutorial on the first hour, in order, with a real service, 200 machines and a Nautobot."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

import pytest
import urllib3

from tests.support.dcim import running
from tests.support.follower import PASSWORD, USER, Follower, steps
from tests.support.nautobot import Nautobot
from tests.support.servers import Server

PAGE: Final = "docs/tutorial/first-hour.md"
FAILING: Final = ("node manage --all", "inspect --state", "inventory diff")


@pytest.mark.timeout(3600)
def test_a_newcomer_finds_the_bad_machines_and_the_missing_module_and_has_the_others_in_nautobot(
    tmp_path: Path, shared_postgresql: Server
) -> None:
    directory = tmp_path / "hour"
    directory.mkdir()
    with running(Nautobot, tmp_path, shared_postgresql) as real:
        hour = Follower(
            directory,
            failing=FAILING,
            own={"https://nautobot.example.org": real.url},
            variables={"NAUTOBOT_TOKEN": real.token},
        )
        devices = []
        try:
            for command in steps(PAGE):
                hour.follow(command)
                if "sync nautobot" in command:
                    devices.append(len(real.list("dcim/devices")))
            _check(hour)
        finally:
            hour.end()
    # All but those whose BMC does not answer, those whose inspection failed, and 25 whose maker has not entered a
    # model; the dry run has created none.
    assert devices == [0, 171, 171]
    assert "part-gone" in next(text for command, text in hour.outputs.items() if command.endswith("--role Server"))


def _check(hour: Follower) -> None:
    def of(part: str) -> str:
        (text,) = [text for command, text in hour.outputs.items() if part in command]
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
            body=urlencode({"csrf": csrf, "user": USER, "password": PASSWORD}),
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
