"""The commands of the tutorial on the first hour that need a Nautobot."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.nightly.examples.test_first_hour import FAILING, PAGE, _check
from tests.support.dcim import running
from tests.support.follower import Follower, steps
from tests.support.nautobot import Nautobot
from tests.support.servers import Server


@pytest.mark.timeout(3600)
def test_the_machines_are_in_nautobot_and_the_module_is_told(tmp_path: Path, shared_postgresql: Server) -> None:
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
