"""Simulated machines that must not be powered off, inspected by the real service: not once are they off."""

from __future__ import annotations

from pathlib import Path

from ferroscope_sim.client import FleetClient
from ferroscope_sim.enroll import enroll
from ferroscope_sim.model import FleetSettings, roster
from ferroscope_sim.outcomes import Effect
from ferroscope_sim.run import FleetThread
from tests.support.processes import PATIENCE, free_port, until
from tests.support.real_service import service


def test_machines_that_must_not_be_off_are_inspected_without_being_off(tmp_path: Path) -> None:
    port = free_port()
    callback = f"http://127.0.0.1:{port}/v1/continue_inspection"
    settings = FleetSettings(nodes=6, boot_delay=0.05, boot_jitter=0.02, callback_url=callback)
    with (
        service(tmp_path, port=port) as api,
        FleetThread(settings) as fleet,
        FleetClient(fleet.address) as client,
    ):
        names = [member.name for member in roster(settings)]
        for name in names:
            client.call("set_power", node=name, power="power on")
        assert client.wait_for(Effect.POWER_ONS, len(names), timeout=PATIENCE)
        enroll(roster(settings), api_url=api.url, sim_address=fleet.address)
        api.version = "1.95"
        for name in names:
            api.call("PATCH", f"/v1/nodes/{name}", [{"op": "add", "path": "/disable_power_off", "value": True}])
            api.call("PUT", f"/v1/nodes/{name}/states/provision", {"target": "inspect"})
        done = lambda: all(api.node(name)["inspection_finished_at"] for name in names)  # noqa: E731
        assert until(done), [api.node(name)["last_error"] for name in names]
        assert until(lambda: client.status().totals.reboots == 12), client.status()
        totals = client.status().totals
        assert (totals.power_offs, totals.power_ons, totals.pxe_boots) == (0, 6, 6)
        assert {api.node(name)["power_state"] for name in names} == {"power on"}
