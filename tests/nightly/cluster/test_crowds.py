"""Many callers with the same wish at the same moment, over several api and worker processes: it happens once."""

from __future__ import annotations

import concurrent.futures
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import urllib3

from ferroscope_sim.inventory import generate, macs, pxe_mac
from ferroscope_sim.ramdisk import MAX_ATTEMPTS
from tests.support.cluster.cluster import Cluster, Plan
from tests.support.processes import PATIENCE, until

_DISCOVERY = (
    "[auto_discovery]\nenabled = true\ndriver = fake-hardware\nmax_per_minute = 20\n"
    "[inspector]\nhooks = $default_hooks,memory\n"
)
_CROWD = 100
# A call waits for others for [database] busy_timeout; then the answer is a 503 that says when to come again, which
# ramdisks and clients do. On a machine that is busy with other things that happens to some of a hundred.
_AGAIN = urllib3.Retry(
    connect=0, read=0, redirect=0, other=0, status=MAX_ATTEMPTS, status_forcelist=(503,), allowed_methods=None,
    respect_retry_after_header=True, raise_on_status=False,
)  # fmt: skip


class Crowd:
    """A hundred callers of one cluster, each with a connection of its own."""

    def __init__(self, cluster: Cluster) -> None:
        self._url = cluster.url
        self._http = urllib3.PoolManager(maxsize=_CROWD, retries=_AGAIN, timeout=PATIENCE)
        self._threads = concurrent.futures.ThreadPoolExecutor(_CROWD)

    def __enter__(self) -> Crowd:
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown()
        self._http.clear()

    def call(self, method: str, path: str, body: bytes | None = None, version: str = "1.95") -> tuple[int, Any]:
        headers = {"X-OpenStack-Ironic-API-Version": version}
        answer = self._http.request(method, self._url + path, body=body, headers=headers)
        return answer.status, msgspec.json.decode(answer.data) if answer.data else None

    def call_back(self, body: bytes) -> tuple[int, Any]:
        return self.call("POST", "/v1/continue_inspection", body, "1.1")

    def at_once(self, act: Callable[[int], tuple[int, Any]]) -> list[tuple[int, Any]]:
        """Return what a hundred calls at once are answered."""
        return list(self._threads.map(act, range(_CROWD)))

    def nodes(self, query: str) -> list[Any]:
        found: list[Any] = self.call("GET", f"/v1/nodes?{query}&fields=uuid,provision_state,name")[1]["nodes"]
        return found

    def inspections(self, node: str) -> list[Any]:
        found: list[Any] = self.call("GET", f"/v1/nodes/{node}/timeline")[1]["inspections"]
        return found

    def await_end(self, node: str, state: str) -> Any:
        """Return the newest inspection once it has ended in ``state``."""
        assert until(lambda: self.inspections(node)[0]["finished_at"] is not None), self.inspections(node)
        newest = self.inspections(node)[0]
        assert newest["state"] == state, newest
        return newest

    def enroll_waiting(self, index: int) -> str:
        """Enrol machine ``index`` without a BMC and start its inspection; return its UUID when it waits."""
        uuid = str(self.call("POST", "/v1/nodes", b'{"driver":"fake-hardware"}')[1]["uuid"])
        self.call("POST", "/v1/ports", msgspec.json.encode({"node_uuid": uuid, "address": pxe_mac(index)}))
        self.start(uuid)
        assert until(lambda: self.inspections(uuid)[0]["state"] == "waiting")
        return uuid

    def start(self, ident: str) -> tuple[int, Any]:
        return self.call("PUT", f"/v1/nodes/{ident}/states/provision", b'{"target":"inspect"}')


@pytest.mark.parametrize(
    "database_url",
    ["postgresql", "sqlite", "mariadb"],
    indirect=True,
)
def test_a_crowd_has_its_wish_once(database_url: str, tmp_path: Path) -> None:
    plan = Plan(apis=2, workers=2, nodes=3, options=_DISCOVERY)
    with Cluster(tmp_path, database_url, plan) as cluster, Crowd(cluster) as crowd:
        identical_callbacks_are_processed_once(crowd)
        starts_boot_the_machine_once(cluster, crowd)
        first_calls_make_one_node(crowd)
        a_flood_is_limited_and_keeps_nobody_out(crowd)
        faults = [
            line for played in cluster.processes() for line in played.output().splitlines() if "Traceback" in line
        ]
        assert faults == []


def identical_callbacks_are_processed_once(crowd: Crowd) -> None:
    node, body = crowd.enroll_waiting(5000), generate(5000, size=20_000)
    answers = crowd.at_once(lambda _: crowd.call_back(body))
    assert Counter(status for status, _ in answers) == {202: _CROWD}
    assert {answer["uuid"] for _, answer in answers} == {node}
    ended = crowd.await_end(node, "finished")
    steps = Counter(entry["step"] for entry in ended["entries"])
    assert (steps["processed"], steps["finished"], steps["failed"]) == (1, 1, 0)
    assert len(crowd.inspections(node)) == 1


def starts_boot_the_machine_once(cluster: Cluster, crowd: Crowd) -> None:
    name = cluster.names[0]
    answers = crowd.at_once(lambda _: crowd.start(name))
    # Who comes when the machine is up already is told so.
    assert set(Counter(status for status, _ in answers)) <= {202, 409}
    assert answers[0][0] == 202 or any(status == 202 for status, _ in answers)
    crowd.await_end(name, "finished")
    assert len(crowd.inspections(name)) == 1
    with cluster.counters() as fleet:
        counters = fleet.status([name]).nodes[name].counters
    assert (counters.power_ons, counters.pxe_boots, counters.reboots) == (1, 1, 0)


def first_calls_make_one_node(crowd: Crowd) -> None:
    body = generate(6000, size=20_000)
    answers = crowd.at_once(lambda _: crowd.call_back(body))
    assert Counter(status for status, _ in answers) == {202: _CROWD}
    (node,) = crowd.nodes("auto_discovered=true")
    assert {answer["uuid"] for _, answer in answers} == {node["uuid"]}
    ended = crowd.await_end(node["uuid"], "finished")
    steps = Counter(entry["step"] for entry in ended["entries"])
    assert (steps["called"], steps["processed"], steps["finished"]) == (1, 1, 1)
    assert crowd.nodes("inbox=true")[0]["provision_state"] == "enroll"
    ports = crowd.call("GET", f"/v1/ports?node={node['uuid']}")[1]["ports"]
    assert {port["address"] for port in ports} <= set(macs(6000))
    assert len(ports) >= 1


def a_flood_is_limited_and_keeps_nobody_out(crowd: Crowd) -> None:
    known = crowd.enroll_waiting(7000)

    def flood(number: int) -> tuple[int, Any]:
        if number == _CROWD // 2:
            return crowd.call_back(generate(7000, size=20_000))
        return crowd.call_back(generate(8000 + number, size=10_000))

    answers = crowd.at_once(flood)
    assert set(Counter(status for status, _ in answers)) == {202, 404}
    assert answers[_CROWD // 2] == (202, {"uuid": known})
    # Twenty in a minute, and one that came before; the minute may have ended meanwhile.
    assert 20 <= len(crowd.nodes("auto_discovered=true")) <= 41
    crowd.await_end(known, "finished")
