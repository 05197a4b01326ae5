"""Simulated machines get the secret of their inspection as real ones do; those that do not are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from ferroscope_sim.enroll import enroll
from ferroscope_sim.model import FleetSettings, roster
from ferroscope_sim.run import FleetThread
from tests.support.processes import free_port, until
from tests.support.real_service import service

NAMES = ("sim-0001", "sim-0002", "sim-0003")


@pytest.mark.parametrize(("loads", "state"), [(True, "manageable"), (False, "inspect failed")])
def test_machines_that_return_the_secret_are_inspected_and_others_are_refused(
    tmp_path: Path, loads: bool, state: str
) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    script = f"{url}/v1/boot.ipxe"
    settings = FleetSettings(
        nodes=len(NAMES),
        boot_delay=0.1,
        boot_jitter=0.0,
        callback_url=f"{url}/v1/continue_inspection",
        boot_script_url=script if loads else "",
    )
    more = f"[boot]\nmachine_script_url = {script}\n"
    with service(tmp_path, more, port=port) as api, FleetThread(settings) as fleet:
        enroll(roster(settings), api_url=api.url, sim_address=fleet.address)
        for name in NAMES:
            api.call("PUT", f"/v1/nodes/{name}/states/provision", {"target": "inspect"})
        assert until(lambda: all(api.node(name)["provision_state"] == state for name in NAMES))
        totals = fleet.fleet.totals
        expected = (3, 0) if loads else (0, 3)
        # A node may have changed before its machine has read the answer.
        assert until(lambda: (totals.callbacks_accepted, totals.callbacks_refused) == expected), totals
        if not loads:
            assert "callback-refused" in api.node(NAMES[0])["last_error"]
