"""A whole inspection of a machine with an IPMI BMC, booted from the network, by the real service."""

from __future__ import annotations

from pathlib import Path

from tests.integration.bmc.test_inspections import call_back, inspect, reach
from tests.integration.sim.service import service
from tests.support.ipmi import PASSWORD, simulator
from tests.support.processes import until
from tests.support.redfish import mac

_MORE = """
[drivers]
enabled = ipmi
command_timeout = 5
[inspector]
timeout = 30
"""


def test_an_ipmi_machine_boots_from_the_network_once_and_is_powered_off_in_the_end(tmp_path: Path) -> None:
    with simulator(tmp_path / "bmc") as bmc, service(tmp_path, _MORE) as api:
        api.version = "1.84"
        body = {"name": "old-7", "driver": "ipmi", "driver_info": bmc.node(ipmi_cipher_suite=3).driver_info}
        node = api.call("POST", "/v1/nodes", body)
        api.call("POST", "/v1/ports", {"node_uuid": node["uuid"], "address": mac(0)})
        api.call("PUT", "/v1/nodes/old-7/states/provision", {"target": "manage"})
        reach(api, "old-7", "manageable")
        inspect(api, "old-7")
        assert reach(api, "old-7", "inspect wait")["power_state"] == "power on"
        call_back(api, 0)
        reach(api, "old-7", "manageable")
        assert until(lambda: bmc.commands[-1:] == ["power 0"], seconds=10)
        assert bmc.commands == ["boot pxe", "power 1", "power 0"]
        assert PASSWORD not in (tmp_path / "service.log").read_text()
