"""The WSGI application under Apache httpd with mod_wsgi and under gunicorn: the real ones, configured as in deploy/."""

from __future__ import annotations

import http.client
import itertools
import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
import pytest
import urllib3

from bench.service import executable
from ferroscope_sim.enroll import enroll
from ferroscope_sim.inventory import generate, pxe_mac
from ferroscope_sim.model import FleetSettings, roster
from ferroscope_sim.run import FleetThread
from tests.nightly.cluster.test_restart import Reader
from tests.support import databases
from tests.support.cluster.balancer import Balancer
from tests.support.installation import Played
from tests.support.processes import PATIENCE, until
from tests.support.servers import Server
from tests.support.web_servers import KINDS, WebServer
from tests.system.clients.logins import PASSWORD

_NODES: Final = 15
_VERSION: Final = {"X-OpenStack-Ironic-API-Version": "1.96"}
_OPERATOR: Final = _VERSION | urllib3.make_headers(basic_auth=f"operator:{PASSWORD}")
_HTTP: Final = urllib3.PoolManager(retries=False, timeout=PATIENCE)
# Of machines that are not in the fleet.
_numbers = itertools.count(5000)

Headers = Mapping[str, str]


class Site:
    """A web server, HAProxy in front of it, a worker, and a fleet."""

    def __init__(self, server: WebServer, balancer: Balancer, fleet: FleetThread) -> None:
        self.server, self.balancer, self.fleet = server, balancer, fleet
        self.url = balancer.url
        self._http = urllib3.PoolManager(maxsize=8, retries=False, timeout=PATIENCE)

    def answer(self, method: str, path: str, body: Any = None, headers: Headers = _OPERATOR) -> Any:
        return self._http.request(method, self.url + path, json=body, headers=headers)

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """Return the document of a successful call by the operator."""
        given = self.answer(method, path, body)
        assert given.status < 300, f"{method} {path}: {given.status} {given.data!r}"
        return json.loads(given.data) if given.data else None

    def states(self) -> dict[str, tuple[str, str | None]]:
        """Return provision state and last error of each node of the fleet."""
        nodes = self.request("GET", "/v1/nodes?fields=name,provision_state,last_error&limit=1000")["nodes"]
        return {node["name"]: (node["provision_state"], node["last_error"]) for node in nodes if "sim" in node["name"]}

    def fake_node(self) -> tuple[str, int]:
        """Return name and number of a new node in inspect wait, whose ramdisk the test plays."""
        number = next(_numbers)
        name, mac = f"fake-{number}", pxe_mac(number)
        self.request("POST", "/v1/nodes", {"name": name, "driver": "fake-hardware"})
        uuid = self.request("GET", f"/v1/nodes/{name}")["uuid"]
        self.request("POST", "/v1/ports", {"node_uuid": uuid, "address": mac})
        for target, state in (("manage", "manageable"), ("inspect", "inspect wait")):
            self.request("PUT", f"/v1/nodes/{name}/states/provision", {"target": target})
            self.await_state(name, state)
        return name, number

    def await_state(self, name: str, state: str) -> None:
        path = f"/v1/nodes/{name}?fields=provision_state,last_error"
        reached = until(lambda: self.request("GET", path)["provision_state"] == state)
        assert reached, self.request("GET", path)


# Beneath either is the same application; how each starts, stops and refuses is tested with both.
@pytest.fixture(scope="module", params=["apache", "gunicorn"])
def site(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, shared_postgresql: Server
) -> Iterator[Site]:
    """Give an installation that the tests of a server share; it is faultless at the end."""
    directory = tmp_path_factory.mktemp(request.param)
    users = directory / "htpasswd"
    words = [executable(), "user", "add", "operator", "--role", "admin", "--file", str(users)]
    subprocess.run(words, input=f"{PASSWORD}\n", text=True, capture_output=True, check=True)
    options = (
        f"auth_strategy = http_basic\nhttp_basic_auth_user_file = {users}\ntrusted_proxies = 127.0.0.1\n"
        "failure_rate = 0.001\n[audit]\nenabled = true\n"
    )
    with databases.fresh(shared_postgresql) as url:
        server = KINDS[request.param](directory, url, options)
        worker = Played("worker", directory, [executable(), "worker", "-c", str(server.config)])
        balancer = Balancer(directory, [(server.bare_metal, server.introspection)])
        fleet = FleetSettings(
            nodes=_NODES,
            callback_url=f"{balancer.url}/v1/continue_inspection",
            boot_delay=1.5,
            boot_jitter=1.4,
            time_scale=0.05,
        )
        try:
            server.wait_ready()
            worker.wait_ready()
            balancer.wait_listens()
            with FleetThread(fleet) as running:
                enrolled = enroll(
                    roster(fleet),
                    api_url=balancer.url,
                    sim_address=running.address,
                    headers=_OPERATOR,
                    patience=60,
                )
                assert not enrolled.failed
                yield Site(server, balancer, running)
            assert "Traceback" not in server.output()
        finally:
            balancer.end()
            worker.end()
            server.played.end()


def test_a_machine_is_inspected_through_either_api(site: Site) -> None:
    name = next(iter(site.states()))
    site.request("PUT", f"/v1/nodes/{name}/states/provision", {"target": "inspect"})
    site.await_state(name, "manageable")
    node = site.request("GET", f"/v1/nodes/{name}")
    assert node["last_error"] is None
    assert node["links"][0]["href"].startswith(f"{site.url}/v1/nodes/")
    assert site.request("GET", f"/v1/nodes/{name}/inventory")["inventory"]["cpu"]
    base = f"http://127.0.0.1:{site.balancer.introspection}"
    started = _HTTP.request("POST", f"{base}/v1/introspection/{node['uuid']}", headers=_OPERATOR)
    assert started.status == 202

    def finished() -> bool:
        found = _HTTP.request("GET", f"{base}/v1/introspection/{node['uuid']}", headers=_OPERATOR)
        return bool(found.json()["finished"] and found.json()["error"] is None)

    assert until(finished)


def test_large_bodies_in_chunks_arrive_as_they_were_sent(site: Site) -> None:
    name, number = site.fake_node()
    sent = msgspec.json.decode(generate(number))
    sent["inventory"]["padding"] = ["".join(random.choices("abcdefgh", k=1000)) for _ in range(1200)]
    body = json.dumps(sent).encode()
    pieces = (body[at : at + 50_000] for at in range(0, len(body), 50_000))
    called = _HTTP.request("POST", f"{site.server.url}/v1/continue_inspection", body=pieces)
    assert called.status == 202, called.data
    site.await_state(name, "manageable")
    assert site.request("GET", f"/v1/nodes/{name}/inventory")["inventory"]["padding"] == sent["inventory"]["padding"]


def test_logins_are_limited_by_the_real_address_of_the_client(site: Site) -> None:
    forwarded = {"X-Forwarded-For": "192.0.2.99", "X_Forwarded_For": "192.0.2.98"}
    proxied, direct = site.balancer.bare_metal, site.server.bare_metal

    def get(port: int, source: str, password: str) -> int:
        headers = {**_VERSION, **forwarded, **urllib3.make_headers(basic_auth=f"operator:{password}")}
        connection = http.client.HTTPConnection("127.0.0.1", port, 60, source_address=(source, 0))
        try:
            connection.request("GET", "/v1/nodes?limit=1", headers=headers)
            return connection.getresponse().status
        finally:
            connection.close()

    def guess(port: int, source: str) -> int:
        return get(port, source, f"wrong-{next(_numbers)}")  # to repeat a wrong password is no guess

    places = ((proxied, "127.0.0.3", "127.0.0.4"), (direct, "127.0.0.5", "127.0.0.6"))
    assert [guess(port, source) for port, source, _ in places] == [401, 401]
    for port, source, other in places:
        # Each process counts by itself, and all addresses of this host as one.
        assert until(lambda port=port, source=source: [guess(port, source) for _ in range(4)] == [429] * 4)
        assert get(port, other, PASSWORD) == 200
    events = site.request("GET", "/v1/audit?limit=1000")
    sources = {event["source"] for event in next(iter(events.values())) if event["status"] == 401}
    assert {"127.0.0.3", "127.0.0.5"} <= sources
    assert not {"192.0.2.98", "192.0.2.99"} & sources


def test_a_graceful_restart_under_load_fails_no_request(site: Site) -> None:
    readers = [Reader(site.url, "/v1/nodes?limit=20", _OPERATOR) for _ in range(3)]
    for reader in readers:
        reader.start()
    assert until(lambda: all(reader.answered for reader in readers))
    before = msgspec.structs.replace(site.fleet.fleet.totals)
    restarts = 0

    def restart() -> None:
        nonlocal restarts
        restarts += 1
        old = site.server.serving()
        site.server.reload()
        assert until(lambda: not set(old) & set(site.server.serving()))

    _inspect_all(site, least=2, meanwhile=restart)
    for reader in readers:
        reader.end()
    after = site.fleet.fleet.totals
    failed = [failure for reader in readers for failure in reader.failed]
    # A node may have changed before its machine has read the answer.
    assert until(lambda: after.callbacks_accepted - before.callbacks_accepted == _NODES), after
    accepted = after.callbacks_accepted - before.callbacks_accepted
    print(f"{restarts} graceful restarts, {sum(reader.answered for reader in readers)} reads, {accepted} callbacks")
    assert failed == [], f"{len(failed)}: {site.balancer.log.read_text()[-2000:]}\n{site.server.output()[-4000:]}"
    assert after.callbacks_failed == before.callbacks_failed


def test_killed_processes_lose_no_callback(site: Site) -> None:
    before = msgspec.structs.replace(site.fleet.fleet.totals)
    kills = 0

    def kill() -> None:
        nonlocal kills
        if victims := site.server.serving():
            os.kill(random.choice(victims), signal.SIGKILL)
            kills += 1
            time.sleep(0.3)

    _inspect_all(site, least=6, meanwhile=kill)
    after = site.fleet.fleet.totals
    sent = after.callbacks_sent - before.callbacks_sent
    accepted = after.callbacks_accepted - before.callbacks_accepted
    # A machine whose callback was committed, but not answered, may be switched off before it repeats it.
    print(
        f"{kills} kills, {sent} callbacks sent, {sent - accepted} not answered; {_NODES} inspections finished, 0 lost"
    )
    assert kills
    assert after.callbacks_refused == before.callbacks_refused


def _inspect_all(site: Site, *, least: int, meanwhile: Any) -> None:
    """Inspect all nodes at once, and do something until they are done, ``least`` times or more; none may fail."""
    names = sorted(site.states())
    assert len(names) == _NODES
    for name in names:
        put = lambda name=name: site.answer("PUT", f"/v1/nodes/{name}/states/provision", {"target": "inspect"}).status  # noqa: E731
        assert until(lambda put=put: _accepted(put))
    done: dict[str, Any] = {}
    deadline, times = time.monotonic() + PATIENCE, 0
    while time.monotonic() < deadline and (len(done) < _NODES or times < least):
        meanwhile()
        times += 1
        if _accepted(lambda: 202 if site.answer("GET", "/v1/nodes?limit=1").status == 200 else 0):
            done = {name: error for name, (state, error) in _tried(site).items() if state == "manageable"}
    assert done == dict.fromkeys(names)


def _tried(site: Site) -> dict[str, tuple[str, str | None]]:
    """Return the states, none of them if this call was hit."""
    try:
        return site.states()
    except (urllib3.exceptions.HTTPError, AssertionError):
        return {}


def _accepted(call: Any) -> bool:
    """Whether a call was accepted; 409: a previous one was, whose answer was lost."""
    try:
        return call() in (202, 409)
    except urllib3.exceptions.HTTPError:
        return False
