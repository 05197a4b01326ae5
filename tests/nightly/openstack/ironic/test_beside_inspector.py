"""A real ironic-inspector beside a real Ferroscope: all ramdisks call here, whichever of the two has booted them."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest
import urllib3

from ferroscope_sim.inventory import generate, pxe_mac
from tests.support.bare_metal import Ironic
from tests.support.inspector.service import Inspector
from tests.support.installation import Installation, Played
from tests.support.processes import PATIENCE, free_port, until

_HTTP: Final = urllib3.PoolManager(retries=False, timeout=PATIENCE)
_OURS: Final = """\
[database]
connection = sqlite:///{directory}/f.db
[api]
host = 127.0.0.1
bare_metal_port = {port}
introspection_port = 0
failure_rate = 0
[worker]
threads = 2
[lease]
profile = fast
[drivers]
enabled = fake-hardware
[inspector]
forward_unknown_to = {there}/v1/continue
"""
_PXE_FILTER: Final = """\
[pxe_filter]
network = beside-{port}
backends = dnsmasq
dhcp_hostsdir = {hosts}
unknown_hosts = allow
sync_period = 0.3
inspector_connection = sqlite:///{directory}/inspector.db
"""
# The ramdisk repeats a callback after 5xx and lost connections. Source: ironic_python_agent/inspector.py.
_PAUSE: Final = 0.5
_HOST: Final = re.compile(r"((?:[0-9a-f]{2}:){5}[0-9a-f]{2})(,ignore)?$", re.MULTILINE)
_NUMBERS: Final = itertools.count(700_000)


class Site(Installation):
    """Both services, with the nodes of one Ironic; two api processes of ours."""

    def __init__(self, directory: Path, ironic: Ironic) -> None:
        super().__init__(directory)
        self.ironic = ironic
        self.ports = [free_port(), free_port()]
        self._http = urllib3.PoolManager(retries=False, timeout=PATIENCE, maxsize=32)
        self.inspector: Inspector
        self.apis: list[Played] = []

    def _start(self) -> None:
        self.inspector = Inspector(self.directory, self.ironic.url)
        self.after(self.inspector.end)
        configs = []
        for port in self.ports:
            configs.append(self.directory / f"f-{port}.conf")
            configs[-1].write_text(_OURS.format(directory=self.directory, port=port, there=self.inspector.url))
        run = [sys.executable, "-m", "ferroscope"]
        subprocess.run([*run, "db", "upgrade", "-c", str(configs[0])], check=True, capture_output=True)
        self.config = configs[0]
        self.apis = [self.play(f"api-{config.stem}", [*run, "api", "-c", str(config)]) for config in configs]
        worker = self.play("worker", [*run, "worker", "-c", str(configs[0])])
        for played in (*self.apis, worker):
            played.wait_ready()
        self.inspector.wait_answers()

    def call(self, method: str, path: str, body: Any = None) -> Any:
        headers = {"X-OpenStack-Ironic-API-Version": "1.96"}
        given = self._http.request(method, f"http://127.0.0.1:{self.ports[0]}{path}", json=body, headers=headers)
        assert given.status < 300, (method, path, given.status, given.data)
        return json.loads(given.data) if given.data else None

    def enroll(self, uuid: str, number: int) -> None:
        """Enroll a node of Ironic here, too."""
        self.call("POST", "/v1/nodes", {"uuid": uuid, "driver": "fake-hardware"})
        self.call("POST", "/v1/ports", {"node_uuid": uuid, "address": pxe_mac(number)})
        self.call("PUT", f"/v1/nodes/{uuid}/states/provision", {"target": "manage"})
        self.until_state(uuid, "manageable")

    def until_state(self, uuid: str, state: str) -> None:
        assert until(lambda: self.call("GET", f"/v1/nodes/{uuid}")["provision_state"] == state)

    def inspections(self, uuid: str) -> list[Any]:
        found: list[Any] = self.call("GET", f"/v1/nodes/{uuid}/inspections")["inspections"]
        return found

    def ramdisk(self, number: int) -> int:
        """Call back until there is an answer, at either api process; return its status."""
        body, deadline = generate(number), time.monotonic() + PATIENCE
        for port in itertools.cycle(self.ports):
            try:
                answer = self._http.request("POST", f"http://127.0.0.1:{port}/v1/continue_inspection", body=body)
                if answer.status < 500 or time.monotonic() > deadline:
                    return answer.status
            except urllib3.exceptions.HTTPError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(_PAUSE)
        raise AssertionError


@pytest.fixture
def site(tmp_path: Path, ironic: Ironic) -> Iterator[Site]:
    with Site(tmp_path, ironic) as running:
        yield running


def test_inspections_move_over_with_rolling_restarts_and_none_is_lost(site: Site) -> None:
    """Six machines are inspected there, a third of which is known here; all others are inspected here."""
    numbers = [next(_NUMBERS) for _ in range(10)]
    uuids = {number: site.ironic.enroll(f"moving-{number}", pxe_mac(number)) for number in numbers}
    there, here = numbers[:6], numbers[6:]
    for number in there:
        site.inspector.start_introspection(uuids[number])
    for number in [*there[::3], *here]:
        site.enroll(uuids[number], number)
    for number in here:
        site.call("PUT", f"/v1/nodes/{uuids[number]}/states/provision", {"target": "inspect"})
        site.until_state(uuids[number], "inspect wait")
    idle = next(_NUMBERS)
    site.enroll(str(uuid4()), idle)
    known_there = {pxe_mac(number) for number in there[::3]}
    hosts = _start_pxe_filter(site)
    assert until(lambda: _denied(hosts) == {pxe_mac(idle)})
    # The old service is down when the first machines call.
    assert site.inspector.stop(60) == 0
    with ThreadPoolExecutor(8) as ramdisks:
        called = [ramdisks.submit(site.ramdisk, number) for number in sorted(numbers, key=lambda one: one % 7)]
        site.inspector.start()
        _restart_all(site, lambda: all(one.done() for one in called))
        statuses = [one.result() for one in called]
    assert statuses == [202] * len(numbers)
    for number in there:
        assert until(lambda number=number: site.inspector.status(uuids[number])["state"] in ("finished", "error"))  # type: ignore[misc]
        assert site.inspector.status(uuids[number])["error"] is None
    for number in here:
        site.until_state(uuids[number], "manageable")
    assert until(lambda: _denied(hosts) >= {pxe_mac(idle)} | known_there)
    assert _HTTP.request("POST", f"{site.inspector.url}/v1/continue", body=generate(1)).status == 400
    assert site.ramdisk(1) == 404
    _imported(site, [uuids[number] for number in there], [uuids[number] for number in numbers])


def test_what_was_inspected_there_is_here_too(site: Site) -> None:
    number = next(_NUMBERS)
    uuid = site.ironic.enroll(f"fetched-{number}", pxe_mac(number))
    site.enroll(uuid, number)
    site.inspector.start_introspection(uuid)
    assert site.ramdisk(number) == 202
    assert until(lambda: site.inspections(uuid))
    found = site.call("GET", f"/v1/nodes/{uuid}/inventory")
    assert found["inventory"] == json.loads(generate(number))["inventory"]
    assert "all_interfaces" in found["plugin_data"]
    assert site.call("GET", f"/v1/nodes/{uuid}")["provision_state"] == "manageable"
    # The import knows it already.
    words = ["import", "inspector", str(site.inspector.conf), "-c", str(site.config), "-o", "json"]
    done = subprocess.run([sys.executable, "-m", "ferroscope", *words], capture_output=True, text=True, check=True)
    assert {item["uuid"]: item["result"] for item in json.loads(done.stdout)["items"]}[uuid] == "already imported"
    assert len(site.inspections(uuid)) == 1


def _start_pxe_filter(site: Site) -> Path:
    """Start our PXE filter, which honors what both inspect; return the directory of its files for dnsmasq."""
    hosts, config = site.directory / "hosts", site.directory / "pxe-filter.conf"
    hosts.mkdir()
    config.write_text(
        site.config.read_text() + _PXE_FILTER.format(hosts=hosts, directory=site.directory, port=site.ports[0])
    )
    site.play("pxe-filter", [sys.executable, "-m", "ferroscope", "pxe-filter", "-c", str(config)]).wait_ready("open")
    return hosts


def _denied(hosts: Path) -> set[str]:
    """Return the MACs that dnsmasq does not answer; a file of a single one takes precedence over lists."""
    lists, singles = set[str](), dict[str, bool]()
    for path in hosts.iterdir():
        for mac, ignored in _HOST.findall(path.read_text()):
            if "denied-" in path.name:
                lists.add(mac)
            else:
                singles[mac] = bool(ignored)
    return {mac for mac in lists | singles.keys() if singles.get(mac, True)}


def _restart_all(site: Site, over: Callable[[], bool]) -> None:
    """Restart the api processes one after the other, as for an upgrade, until it is over."""
    # In the main thread: processes die with the thread that has started them.
    rounds = 0
    while rounds < 1 or not over():
        for api in site.apis:
            assert api.stop() == 0
            api.start()
            api.wait_ready()
        rounds += 1
    print(f"{rounds} rounds of restarts")


def _imported(site: Site, there: list[str], everything: list[str]) -> None:
    """Import what the old service has done; then everything is here."""
    words = ["import", "inspector", str(site.inspector.conf), "--create", "manageable", "--driver", "fake-hardware"]
    command = [sys.executable, "-m", "ferroscope", *words, "-c", str(site.config), "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    results = {item["uuid"]: item["result"] for item in json.loads(done.stdout)["items"]}
    # Those that are known here were fetched, or are imported now.
    assert {results[uuid] for uuid in there} <= {"imported", "created", "already imported"}
    assert "created" in results.values()
    for uuid in everything:
        assert site.call("GET", f"/v1/nodes/{uuid}")["provision_state"] == "manageable"
        assert site.call("GET", f"/v1/nodes/{uuid}/inventory")["inventory"]["cpu"]
