"""Several systems behind one address: their calls do not wait for each other, and share few sessions."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ferroscope.bmc.redfish.driver import RedfishBmc
from ferroscope.contracts.bmc import Power
from tests.support.processes import PATIENCE
from tests.support.scripted_redfish import ScriptedBmc, answer, collection, link

PATHS = [f"/redfish/v1/Systems/{number}" for number in (1, 2, 3)]


def test_calls_for_different_systems_are_made_at_the_same_time(bmc: ScriptedBmc, driver: RedfishBmc) -> None:
    bmc.documents["/redfish/v1/"] |= {"Links": {"Sessions": link("/redfish/v1/SessionService/Sessions")}}
    bmc.documents["/redfish/v1/Systems"] = collection(*PATHS)
    bmc.sessions = set()
    meeting = threading.Barrier(len(PATHS), timeout=PATIENCE)

    def together(system: dict[str, Any]) -> Any:
        meeting.wait()
        return answer(200, system)

    for path in PATHS:
        system = {**bmc.system, "Id": path[-1]}
        bmc.documents[path] = system
        bmc.upon["GET", path] = lambda _body, system=system: together(system)  # type: ignore[misc]
    nodes = [bmc.node(redfish_system_id=path) for path in PATHS]
    with ThreadPoolExecutor(len(PATHS)) as pool:
        for _ in range(3):
            assert list(pool.map(driver.get_power, nodes)) == [Power.ON] * len(PATHS)
    assert len(bmc.asked("POST", "Sessions")) == len(PATHS)
