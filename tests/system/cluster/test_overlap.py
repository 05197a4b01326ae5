"""What overlaps in real processes: resets with the death of their worker, callbacks of two machines with each other."""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from tests.support.cluster import resets
from tests.support.cluster.cluster import Cluster, Plan, pool
from tests.support.processes import until

_APART: Final = 0.05  # seconds from the first callback to the other machine's


def test_no_machine_is_reset_twice_whose_worker_died_while_the_bmc_was_at_it(
    postgresql_url: str, tmp_path: Path
) -> None:
    """The same with 200 machines: ``python -m tests.support.cluster.resets``."""
    found = resets.play(postgresql_url, tmp_path, machines=10, batch=10)
    assert found.held, found
    assert found.killed
    assert not found.wrong


def test_of_two_different_callbacks_none_is_accepted_and_forgotten(postgresql_url: str, tmp_path: Path) -> None:
    """The second one comes over another api, while the machine of the first one is being powered off."""
    special = tuple(f"sim-timeout-{number}" for number in range(1, 13))
    options = "[worker]\nget_timeout = 0.5\n"
    plan = Plan(apis=2, workers=1, nodes=0, special=special, bmc=0.06, options=options)
    with Cluster(tmp_path, postgresql_url, plan) as cluster:
        apis = [_address(tmp_path, number) for number in (1, 2)]
        with ThreadPoolExecutor(max_workers=4) as threads:
            wrong = [said for said in threads.map(lambda name: _contradict(cluster, apis, name), special) if said]
    print("\n".join(wrong))
    assert len(wrong) == 0


def _address(tmp_path: Path, number: int) -> str:
    found = re.search(r"bare_metal_port = (\d+)", (tmp_path / f"api-{number}.conf").read_text())
    assert found is not None
    return f"http://127.0.0.1:{found[1]}"


def _contradict(cluster: Cluster, apis: list[str], name: str) -> str:
    """Let two machines call for one node; return what is wrong with what came of it."""
    http = pool(1)
    node = f"{cluster.url}/v1/nodes/{name}"
    version = {"X-OpenStack-Ironic-API-Version": "1.95"}
    assert http.request("PUT", f"{node}/states/provision", json={"target": "inspect"}, headers=version).status == 202
    assert until(lambda: _get(http, node)["provision_state"] == "inspect wait")
    (mac,) = [port["address"] for port in _get(http, f"{node}/ports")["ports"]][:1]
    ramdisk = {"X-OpenStack-Ironic-API-Version": "1.1"}
    first = http.request("POST", f"{apis[0]}/v1/continue_inspection", json=_body(mac, 8), headers=ramdisk)
    time.sleep(_APART)
    second = http.request("POST", f"{apis[1]}/v1/continue_inspection", json=_body(mac, 9), headers=ramdisk)
    if not until(lambda: _get(http, node)["provision_state"] in ("manageable", "inspect failed")):
        return (
            f"{name}: {first.status} {first.data!r}, {second.status} {second.data!r}, {_get(http, node + '/timeline')}"
        )
    story = _get(http, f"{node}/timeline")
    inspection = story["inspections"][0]
    steps = [entry["step"] for entry in (*inspection["entries"], *story["entries"])]
    ended = (first.status, second.status, inspection["state"], inspection["reason"])
    if ended == (202, 202, "error", "conflicting-callback") and "callback-contradicted" in steps:
        return ""
    if ended == (202, 404, "finished", None) and "callback-refused" in steps:
        return ""
    return f"{name}: {ended}, {steps}"


def _get(http: Any, url: str) -> Any:
    return http.request("GET", url, headers={"X-OpenStack-Ironic-API-Version": "1.95"}).json()


def _body(mac: str, cpus: int) -> dict[str, Any]:
    inventory = {
        "interfaces": [{"name": "eth0", "mac_address": mac, "ipv4_address": "192.0.2.7", "lldp": []}],
        "cpu": {"architecture": "x86_64", "count": cpus},
        "memory": {"physical_mb": 4096},
        "disks": [],
    }
    return {"inventory": inventory}
