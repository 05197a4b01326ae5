"""A rack of Redfish machines inspected by the real service, with faults between it and their BMCs.

One request in fifteen to a BMC is answered by a 503, a reset, a lost answer or a 401, chosen by a
fixed seed; the power state lags. Each machine ends finished, powered on once, with nothing left in its drives.
"""

from __future__ import annotations

import itertools
import json
import random
import threading
from pathlib import Path

from tests.support import faulty_proxy as fault
from tests.support import images
from tests.support.faulty_proxy import FaultyProxy, proxy_to
from tests.support.processes import free_port, until
from tests.support.real_service import Api, service
from tests.support.redfish import driver_info, emulator, system_uuid
from tests.system.bmc.test_inspections import SECONDS, call_back, inspect

MACHINES = 10
_FAULTS = (fault.status(503), fault.reset, fault.cut, fault.status(401), fault.after_its_effect(fault.reset))


class Unreliable(FaultyProxy):
    """A proxy that fails by chance, the same at each run for the same order of requests."""

    chance = 1 / 15

    def __init__(self, upstream: str, *, sessions: bool = False) -> None:
        self._random = random.Random(7)
        self._choosing = threading.Lock()
        self.faults = 0
        super().__init__(upstream, sessions=sessions)

    def next_fault(self, method: str, path: str) -> fault.Fault | None:
        with self._choosing:
            if "Session" in path or self._random.random() > self.chance:
                return None
            self.faults += 1
            return self._random.choice(_FAULTS)


def _image(directory: Path) -> Path:
    """Return a file that the service serves to the BMCs."""
    path = directory / "ramdisk.iso"
    path.write_bytes(images.iso())
    return path


def test_a_fleet_behind_an_unreliable_network_is_inspected(tmp_path: Path) -> None:
    port = free_port()
    more = f"""
[worker]
threads = 8
max_attempts = 5
[drivers]
allow_http_passwords = true
bmc_networks = 127.0.0.0/8
enabled = redfish
command_timeout = 10
[inspector]
timeout = 60
ramdisk_iso = {_image(tmp_path)}
callback_endpoint_override = http://127.0.0.1:{port}
"""
    with (
        emulator(tmp_path / "rack", machines=MACHINES, lag=0.2) as rack,
        proxy_to(rack.url, sessions=True, kind=Unreliable) as proxy,
        service(tmp_path, more, port=port) as api,
    ):
        api.version = "1.84"
        numbers = range(MACHINES)
        for number in numbers:
            body = {"name": name(number), "driver": "redfish", "driver_info": driver_info(proxy.url, number)}
            api.call("POST", "/v1/nodes", body)
            api.call("PUT", f"/v1/nodes/{name(number)}/states/provision", {"target": "manage"})
        await_all(api, "manageable")
        for number in numbers:
            inspect(api, name(number))
        await_all(api, "inspect wait")
        assert {rack.system(number)["PowerState"] for number in numbers} == {"On"}
        for number in numbers:
            call_back(api, number, rack)
        await_all(api, "manageable")
        assert until(lambda: {rack.system(number)["PowerState"] for number in numbers} == {"Off"}, seconds=SECONDS)
        assert proxy.faults > 12
        for number in numbers:
            assert resets(proxy, system_uuid(number)) == ["On", "ForceOff"]
            assert not rack.media(number, "Cd")["Inserted"]


def resets(proxy: FaultyProxy, system: str) -> list[str]:
    """Return what a machine was commanded and took, each command that was repeated once."""
    path = f"{system}/Actions/ComputerSystem.Reset"
    kinds = [json.loads(seen.body)["ResetType"] for seen in proxy.passed if path in seen.path]
    return [kind for kind, _ in itertools.groupby(kinds)]


def name(number: int) -> str:
    return f"machine-{number}"


def await_all(api: Api, state: str) -> None:
    states: dict[str, str] = {}

    def reached() -> bool:
        nodes = api.call("GET", "/v1/nodes/detail")["nodes"]
        states.update({node["name"]: f"{node['provision_state']}: {node['last_error']}" for node in nodes})
        return all(node["provision_state"] == state for node in nodes)

    assert until(reached), {key: value for key, value in states.items() if not value.startswith(state)}
