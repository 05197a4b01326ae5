"""A cloud on one machine: what it has already, and Ferroscope as examples/cloud/ configures it.

Keystone, Ironic, RabbitMQ, etcd and MariaDB are those of the other tests, forwarded to addresses in the network of the
example. Each load balancer, api and worker has a network namespace of its own. Needs root.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import pymysql
import urllib3

from bench.service import executable
from ferroscope_sim.inventory import generate, pxe_mac
from tests import ROOT
from tests.support.bare_metal import Ironic
from tests.support.cluster.balancer import SHIPPED
from tests.support.cluster.hosts import FLOATING_IP, Network
from tests.support.installation import Played
from tests.support.keystone import Identity, Keystone
from tests.support.processes import until
from tests.support.pxe.netns import Netns
from tests.support.rabbitmq import control
from tests.support.servers import Server
from tests.support.web_servers import changed

EXAMPLE: Final = ROOT / "examples" / "cloud"
CLOUD: Final = "192.0.2.5"
BROKER: Final = "192.0.2.6"
ETCD: Final = "192.0.2.7"
APIS: Final = ("192.0.2.11", "192.0.2.12", "192.0.2.13")
WORKERS: Final = ("192.0.2.21", "192.0.2.22", "192.0.2.23")
_CLIENT: Final = "192.0.2.100"
_LINE: Final = "    server api2 192.0.2.12:{port}"
_ONE_MORE: Final = _LINE + "\n    server api3 192.0.2.13:{port}"
_IRONIC: Final = """\
[keystone_authtoken]
auth_url = {url}
www_authenticate_uri = {url}
auth_type = password
username = ironic
password = secret
user_domain_name = Default
project_name = service
project_domain_name = Default
region_name = local
"""
# A call that nobody answers within these seconds fails; until then the client tries again.
_PATIENCE: Final = 60.0


class Fault(NamedTuple):
    """``harm`` kills one part, ``repair`` starts it again; it need not be ready yet."""

    part: str
    harm: Callable[[], object]
    repair: Callable[[], object]


class Client:
    """Calls Ferroscope over the floating IP with an operator's token; tries again where there is no answer."""

    def __init__(self, space: Netns, token: str) -> None:
        self._space = space
        self._headers = {"X-Auth-Token": token}
        self._http = urllib3.PoolManager(retries=False, timeout=5.0, maxsize=4)
        self.retries = 0
        self.longest = 0.0

    def call(self, method: str, path: str, body: Any = None, *, port: int = 5050) -> tuple[int, Any]:
        """Return status and document of the first answer that is neither a 5xx nor a broken connection."""
        began = time.monotonic()
        while True:
            status, found = self._call(method, f"http://{FLOATING_IP}:{port}{path}", body)
            self.longest = max(self.longest, time.monotonic() - began)
            if 0 < status < 500:
                return status, found
            if time.monotonic() > began + _PATIENCE:
                raise RuntimeError(f"no answer to {method} {path} for {_PATIENCE:g} s; last status: {status}")
            self.retries += 1
            time.sleep(0.2)

    def _call(self, method: str, url: str, body: Any) -> tuple[int, Any]:
        try:
            with self._space.entered():
                given = self._http.request(method, url, json=body, headers=self._headers)
        except (urllib3.exceptions.HTTPError, OSError):
            return 0, None
        # Without a server, HAProxy answers itself: 503 in HTML.
        return given.status, msgspec.json.decode(given.data) if given.data and given.status < 500 else None


class Ramdisks(threading.Thread):
    """Posts the inventory of each machine that waits for it, as its ramdisk does."""

    def __init__(self, client: Client, machines: dict[str, int]) -> None:
        super().__init__(daemon=True)
        self._client, self._machines = client, machines
        self._ending = threading.Event()
        self.called: set[str] = set()
        self.states: dict[str, str] = {}

    def run(self) -> None:
        while not self._ending.wait(0.3):
            listed = self._client.call("GET", "/v1/introspection?limit=1000")[1]["introspection"]
            self.states = {one["uuid"]: one["state"] for one in listed}
            for uuid, state in self.states.items():
                if state == "waiting" and uuid in self._machines and uuid not in self.called:
                    body = msgspec.json.decode(generate(self._machines[uuid]))
                    if self._client.call("POST", "/v1/continue_inspection", body, port=6385)[0] == 202:
                        self.called.add(uuid)

    @property
    def ended(self) -> dict[str, str]:
        """The final state of each machine whose inspection has ended."""
        states = self.states
        return {uuid: states[uuid] for uuid in self._machines if states.get(uuid) in ("finished", "error")}

    def end(self) -> None:
        self._ending.set()
        self.join()


class Cloud(Network):
    """``ironic`` and ``identity`` are what its administrator uses; ``client`` is a user of Ferroscope."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.config = directory / "ferroscope.conf"
        self.config.write_text((EXAMPLE / "ferroscope.conf").read_text())

    def _start(self) -> None:
        super()._start()
        self._start_cloud()
        haproxy = self.directory / "haproxy.cfg"
        more = {_LINE.format(port=port): _ONE_MORE.format(port=port) for port in (6385, 5050)}
        haproxy.write_text(changed(SHIPPED, more))
        apis = [self.host(f"api{number}", address) for number, address in enumerate(APIS)]
        workers = [self.host(f"worker{number}", address) for number, address in enumerate(WORKERS)]
        subprocess.run(
            [*apis[0].prefix, executable(), "db", "upgrade", "-c", str(self.config)], check=True, capture_output=True
        )
        self.apis = [self._serve(space, "api", number) for number, space in enumerate(apis, 1)]
        self.workers = [self._serve(space, "worker", number) for number, space in enumerate(workers, 1)]
        for played in (*self.apis, *self.workers):
            played.wait_ready()
        self.balance(haproxy)
        token = self.keystone.identity.token("operator", "secret", None)
        self.client = Client(self.host("client", _CLIENT), token)
        self.active()

    def _serve(self, space: Netns, role: str, number: int) -> Played:
        return self.play(f"{role}-{number}", [*space.prefix, executable(), role, "-c", str(self.config)])

    def _start_cloud(self) -> None:
        self.keystone = Keystone(self.directory, 3600)
        self.after(self.keystone.end)
        self.database = Server("mariadb", f"cloud-{id(self)}")
        self.after(self.database.discard)
        self.broker = Server("rabbitmq", f"cloud-broker-{id(self)}")
        self.after(self.broker.discard)
        self.etcd = Server("etcd", f"cloud-etcd-{id(self)}")
        self.after(self.etcd.discard)
        _make_database(self.database.port)
        self.ironic = Ironic(self.directory / "ironic", keystone=_IRONIC.format(url=self.keystone.identity.url))
        self.after(self.ironic.end)
        self.keystone.wait_answers()
        _furnish(self.keystone.identity)
        self.ironic.log_in(self.keystone.identity.token("operator", "secret", None))
        self.ironic.wait_answers()
        self._publish("cloud", CLOUD, {3306: self.database.port, 5000: self.keystone.port, 6385: self.ironic.port})
        control(self.broker.directory, "add_user", "ferroscope", "secret")
        control(self.broker.directory, "set_permissions", "ferroscope", ".*", ".*", ".*")
        self._publish("broker", BROKER, {5672: self.broker.port})
        self._publish("etcd", ETCD, {2379: self.etcd.port})

    def _publish(self, tag: str, address: str, ports: dict[int, int]) -> None:
        """Make servers of 127.0.0.1 available at an address of the network."""
        name = self.host(tag, address).name
        pairs = [word for ours, real in ports.items() for word in (f"{name}@{address}:{ours}", f"127.0.0.1:{real}")]
        self.play(
            f"forward-{tag}", [sys.executable, "-m", "tests.support.cluster.forward", *pairs], cwd=ROOT
        ).wait_ready()

    def enroll(self, count: int) -> dict[str, int]:
        """Enroll machines in Ironic; return the number of each by UUID."""
        numbers = range(1, count + 1)
        with ThreadPoolExecutor(4) as pool:
            enrolled = pool.map(lambda number: self.ironic.enroll(f"machine-{number}", pxe_mac(number)), numbers)
            return dict(zip(enrolled, numbers, strict=True))

    def faults(self) -> Sequence[Fault]:
        """One for each kind of part."""
        api, worker = self.apis[0], self.workers[0]
        balancer = self.active()
        return (
            Fault("api of Ferroscope", api.end, api.start),
            Fault("worker of Ferroscope", worker.end, worker.start),
            Fault("active HAProxy", balancer.kill_haproxy, balancer.repair),
            Fault("Ironic", self.ironic.kill_all, self.ironic.start),
            Fault("Keystone", self.keystone.end, self.keystone.start),
            Fault("RabbitMQ", self.broker.kill, self.broker.start),
            Fault("etcd", self.etcd.kill, self.etcd.start),
            Fault("MariaDB", self.database.kill, self.database.start),
        )

    def wrong(self, machines: dict[str, int]) -> list[str]:
        """Return what is not as it must be in Ironic after the inspection of these machines."""
        found = []
        self.ironic.wait_answers()
        for uuid, number in machines.items():
            if not until(lambda uuid=uuid: self.ironic.node(uuid)["reservation"] is None):  # type: ignore[misc]
                found.append(f"{uuid}: locked")
            node = self.ironic.node(uuid)
            wanted = msgspec.json.decode(generate(number))["inventory"]["memory"]["physical_mb"]
            if node["properties"].get("memory_mb") != wanted:
                found.append(f"{node['name']}: memory_mb is {node['properties'].get('memory_mb')}, not {wanted}")
            if node["power_state"] != "power off":
                found.append(f"{node['name']}: {node['power_state']}")
        return found


def _make_database(port: int) -> None:
    with pymysql.connect(host="127.0.0.1", port=port, user="root") as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE ferroscope CHARACTER SET utf8mb4")
        cursor.execute("GRANT ALL ON ferroscope.* TO ferroscope@'%' IDENTIFIED BY 'secret'")


def _furnish(identity: Identity) -> None:
    """Make the users of the example, and the catalog."""
    token = identity.token("admin", "ADMIN", "admin")
    roles = {role["name"]: role["id"] for role in identity.call("GET", "/roles", token=token)["roles"]}
    service = identity.make("project", token, name="service", domain_id="default")
    for name, grants in (
        ("ironic", (f"projects/{service}", "admin")),
        ("ferroscope", (f"projects/{service}", "service")),
        ("operator", ("system", "admin")),
    ):
        user = identity.make("user", token, name=name, password="secret", domain_id="default")
        where, role = grants
        identity.call("PUT", f"/{where}/users/{user}/roles/{roles[role]}", token=token)
        if name == "ferroscope":
            identity.call("PUT", f"/system/users/{user}/roles/{roles['admin']}", token=token)
    identity.make("region", token, id="local")
    for endpoint in identity.call("GET", "/endpoints", token=token)["endpoints"]:
        # Ironic itself is not in the network of the example.
        fields = {name: endpoint[name] for name in ("service_id", "interface", "url")}
        identity.make("endpoint", token, region_id="local", **fields)
        reached = {"endpoint": {"url": f"http://{CLOUD}:5000/v3"}}
        identity.call("PATCH", f"/endpoints/{endpoint['id']}", reached, token)
    for kind, url in (
        ("baremetal", f"http://{CLOUD}:6385"),
        ("baremetal-introspection", f"http://{FLOATING_IP}:5050"),
    ):
        made = identity.make("service", token, type=kind, name=kind)
        for interface in ("public", "internal"):
            fields = {"service_id": made, "interface": interface, "region_id": "one", "url": url}
            identity.make("endpoint", token, **fields)
