"""Simulated machines are inspected out of band by the real service, so that health is seen without hardware."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ferroscope_sim.enroll import enroll
from ferroscope_sim.model import FleetSettings, roster
from ferroscope_sim.run import FleetThread
from tests.support.processes import until
from tests.support.real_service import Api, service
from tests.system.sim.driving import QUICK


class Newest(Api):
    version = "1.101"


@pytest.mark.parametrize("beside", [False, True], ids=["out-of-band", "beside-a-ramdisk"])
def test_a_failing_drive_and_a_failed_fan_are_seen(tmp_path: Path, *, beside: bool) -> None:
    names = ("sim-0001", "sim-failing-drive-1", "sim-failed-fan-1")
    more = "[inspector]\ncollect_out_of_band = true\n" if beside else ""
    with service(tmp_path, more) as running:
        api = Newest(running.url)
        callback = f"{running.url}/v1/continue_inspection"
        settings = FleetSettings(nodes=1, special=names[1:], callback_url=callback, **QUICK)
        with FleetThread(settings) as fleet:
            assert enroll(roster(settings), api_url=running.url, sim_address=fleet.address).failed == {}
            for name in names:
                if not beside:
                    api.call("PATCH", f"/v1/nodes/{name}", [_interface("sim")])
                api.call("PUT", f"/v1/nodes/{name}/states/provision", {"target": "inspect"})
            assert until(lambda: all(api.node(name)["inspection_finished_at"] for name in names))
            found = {name: _health(api, name) for name in names}
            assert found == {
                "sim-0001": ("ok", None),
                "sim-failing-drive-1": ("warning", 1),
                "sim-failed-fan-1": ("critical", None),
            }
            codes = {one["code"] for one in api.call("GET", "/v1/status")["problems"]}
            assert codes >= {"health-critical", "drives-failing"}
            # Only the ramdisk needs a boot.
            assert (fleet.fleet.totals.boots > 0) is beside


def _interface(name: str) -> dict[str, Any]:
    return {"op": "replace", "path": "/inspect_interface", "value": name}


def _health(api: Api, name: str) -> tuple[str | None, int | None]:
    hardware = api.node(name)["hardware"]
    stored = api.call("GET", f"/v1/nodes/{name}/inventory")["plugin_data"]["out_of_band"]
    assert hardware["health"] == stored["health"]["state"], json.dumps(stored)
    return hardware["health"], hardware.get("failing_drives")
