"""Whole inspections of machines with an IPMI BMC, booted from the network, by the real service."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.ipmi import PASSWORD, Simulator, simulator
from tests.support.processes import until
from tests.support.real_service import Api, service
from tests.support.redfish import mac
from tests.system.bmc.test_inspections import call_back, inspect, reach

_MORE = """
[drivers]
bmc_networks = 127.0.0.0/8
enabled = ipmi
command_timeout = 5
[inspector]
timeout = 30
"""


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("service") / "service.log"


@pytest.fixture(scope="module")
def api(log: Path) -> Iterator[Api]:
    """Give the service."""
    with service(log.parent, _MORE) as running:
        running.version = "1.95"
        yield running


def inspected(api: Api, bmc: Simulator, number: int, **fields: Any) -> None:
    """Enrol a machine and inspect it, with a callback as its ramdisk would send it."""
    name = f"old-{number}"
    body = {"name": name, "driver": "ipmi", "driver_info": bmc.node(ipmi_cipher_suite=3).driver_info}
    node = api.call("POST", "/v1/nodes", body | fields)
    api.call("POST", "/v1/ports", {"node_uuid": node["uuid"], "address": mac(number)})
    api.call("PUT", f"/v1/nodes/{name}/states/provision", {"target": "manage"})
    reach(api, name, "manageable")
    inspect(api, name)
    assert reach(api, name, "inspect wait")["power_state"] == "power on"
    call_back(api, number)
    reach(api, name, "manageable")


def test_an_ipmi_machine_boots_from_the_network_once_and_is_powered_off_in_the_end(
    api: Api, log: Path, tmp_path: Path
) -> None:
    with simulator(tmp_path / "bmc") as bmc:
        inspected(api, bmc, 0)
        assert until(lambda: bmc.commands[-1:] == ["power 0"])
        assert bmc.commands == ["boot pxe", "power 1", "power 0"]
    assert PASSWORD not in log.read_text()
