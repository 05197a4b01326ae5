"""Metal3's bare metal operator: what its provisioner sends, in its order, for each kind of Redfish host.

Its requests are made again here, from what its source says that it sends: method, path, query, body and microversion
(github.com/metal3-io/baremetal-operator, ``pkg/provisioner/ironic`` and ``pkg/hardwareutils/bmc``, of August 2026).
``reconcile`` steps as its controller does: it looks at the node, and sends what its state calls for.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.processes import PATIENCE, until
from tests.support.real_service import service
from tests.support.redfish import PASSWORD, USER, Emulator, emulator, mac, system_uuid
from tests.system.clients.environment import Clients, value

# It asks for the newest of those that it has a use for.
_VERSION: Final = "1.110"
_BASELINE: Final = 89
# The scheme of the BMC's address in its BareMetalHost -> the interfaces that it asks for.
HOSTS: Final = {
    "redfish": {"boot_interface": "ipxe"},
    "redfish-virtualmedia": {"boot_interface": "redfish-virtual-media"},
    "redfish-uefihttp": {"boot_interface": "redfish-https"},
    "custom-deploy": {"boot_interface": "redfish-virtual-media", "deploy_interface": "custom-agent"},
}


class Operator:
    """Its client, and what it knows of one host."""

    def __init__(self, url: str, name: str, number: int, kind: str, bmc: str, iso: str = "") -> None:
        self._url = url
        self.name = name
        self.number = number
        self.interfaces = HOSTS[kind]
        self.driver_info = {
            "redfish_address": bmc,
            "redfish_system_id": f"/redfish/v1/Systems/{system_uuid(number)}",
            "redfish_username": USER,
            "redfish_password": PASSWORD,
            "redfish_verify_ca": False,
        }
        self._iso = iso
        self.uuid = ""

    def send(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Return status and document."""
        headers = {
            "Accept": "application/json",
            "Content-Type": "application/json",
            "User-Agent": "gophercloud/v2.13.0",
            "X-OpenStack-Ironic-API-Version": _VERSION,
        }
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, method=method, data=data, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return answer.status, json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as exc:
            with exc:
                return exc.code, exc.read().decode()

    def ok(self, method: str, path: str, body: object = None) -> Any:
        status, document = self.send(method, path, body)
        assert status < 300, (method, path, status, document)
        return document

    def node(self) -> dict[str, Any]:
        found: dict[str, Any] = self.ok("GET", f"/v1/nodes/{self.uuid}")
        return found

    def find(self) -> None:
        """Look for the host by name, by the name of old releases, and by its MAC."""
        for name in (f"metal3~{self.name}", self.name):
            status, document = self.send("GET", f"/v1/nodes/{name}")
            if status == 200:
                self.uuid = document["uuid"]
                return
            assert status == 404
        query = f"address={mac(self.number)}&fields=node_uuid&fields=uuid&fields=address"
        for port in self.ok("GET", f"/v1/ports?{query}")["ports"]:
            self.uuid = port["node_uuid"]

    def enroll(self) -> None:
        body = {
            "driver": "redfish",
            "name": f"metal3~{self.name}",
            "driver_info": self.driver_info,
            "firmware_interface": "redfish",
            "raid_interface": "redfish",
            "inspect_interface": "agent",
            "disable_power_off": False,
            "properties": {"capabilities": "boot_mode:uefi", "cpu_arch": ""},
            **self.interfaces,
        }
        self.uuid = self.ok("POST", "/v1/nodes", body)["uuid"]
        ports = self.ok("GET", f"/v1/ports?fields=node_uuid&fields=uuid&fields=address&node_uuid={self.uuid}")["ports"]
        assert ports == []
        self.ok("POST", "/v1/ports", {"node_uuid": self.uuid, "address": mac(self.number), "pxe_enabled": True})

    def configure(self) -> None:
        changes: list[dict[str, Any]] = [{"op": "add", "path": "/automated_clean", "value": False}]
        if self.interfaces["boot_interface"] != "ipxe":
            changes.append({"op": "add", "path": "/driver_info/deploy_iso", "value": self._iso})
        self.ok("PATCH", f"/v1/nodes/{self.uuid}", changes)

    def provision(self, target: str) -> None:
        self.ok("PUT", f"/v1/nodes/{self.uuid}/states/provision", {"target": target})

    def power(self, target: str, **more: Any) -> int:
        return self.send("PUT", f"/v1/nodes/{self.uuid}/states/power", {"target": target, **more})[0]

    def reconcile(self, state: str, steps: dict[str, Callable[[], None]]) -> dict[str, Any]:
        """Act on what the node's state is until it is ``state``; each step once."""
        left, last = dict(steps), {}

        def reached() -> bool:
            last.update(self.node())
            if (act := left.pop(last["provision_state"], None)) is not None:
                act()
            return bool(last["provision_state"] == state)

        assert until(reached, seconds=60), last
        return last

    def register(self) -> dict[str, Any]:
        self.find()
        assert self.uuid == ""
        self.enroll()
        found = self.reconcile("manageable", {"enroll": lambda: self.provision("manage")})
        self.configure()
        return found


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    with emulator(tmp_path_factory.mktemp("machines"), machines=len(HOSTS) + 2) as running:
        yield running


_DRIVERS: Final = """
[drivers]
allow_http_passwords = true
bmc_networks = 127.0.0.0/8
enabled = redfish, ipmi
command_timeout = 5
"""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with service(tmp_path_factory.mktemp("service"), _DRIVERS) as running:
        yield running.url


@pytest.fixture(params=HOSTS)
def operator(request: pytest.FixtureRequest, url: str, machines: Emulator, iso: str) -> Operator:
    kind = str(request.param)
    return Operator(url, f"host-{kind}", list(HOSTS).index(kind), kind, machines.url, iso)


def test_it_finds_the_microversions_that_it_needs(url: str) -> None:
    known = Operator(url, "x", 0, "redfish", "").ok("GET", "/v1/")["version"]
    major, _, minor = known["version"].partition(".")
    assert (known["status"], major) == ("CURRENT", "1")
    assert int(minor) >= max(_BASELINE, int(_VERSION.partition(".")[2]))


def attach_data(operator: Operator, iso: str) -> None:
    """Attach and detach a data image, as the controller of DataImage objects does."""

    def is_attached() -> bool:
        return any(one["inserted"] for one in operator.ok("GET", f"/v1/nodes/{operator.uuid}/vmedia"))

    assert not is_attached()
    operator.ok("POST", f"/v1/nodes/{operator.uuid}/vmedia", {"device_type": "cdrom", "image_url": iso})
    assert until(is_attached), operator.node()["last_error"]
    operator.ok("DELETE", f"/v1/nodes/{operator.uuid}/vmedia?device_types=cdrom")
    assert until(lambda: not is_attached()), operator.node()["last_error"]


def test_openstacksdk_attaches_and_detaches_an_image(url: str, machines: Emulator, iso: str, tmp_path: Path) -> None:
    host = Operator(url, "host-sdk", len(HOSTS), "redfish", machines.url)
    host.register()
    clients = Clients(tmp_path)
    urls = {"bare_metal": url, "introspection": url}
    try:
        for device, inserted in (("cdrom", True), (None, False)):
            more = {"urls": urls, "node": host.uuid, "device": device, "image": iso}
            value(clients.function("sdk.vmedia", more).done())
            assert until(lambda inserted=inserted: machines.media(host.number, "Cd")["Inserted"] is inserted)  # type: ignore[misc]
    finally:
        clients.close()
    assert host.node()["last_error"] is None


def test_an_image_that_the_bmc_cannot_fetch_is_the_nodes_last_error(tmp_path: Path, machines: Emulator) -> None:
    # The BMC answers 500, as it would while it restarts: it is asked until the time is over.
    with service(tmp_path, f"{_DRIVERS}inventory_timeout = 3\n[worker]\nmax_attempts = 1\n") as running:
        host = Operator(running.url, "host-lost", len(HOSTS) + 1, "redfish", machines.url)
        host.register()
        body = {"device_type": "cdrom", "image_url": "http://127.0.0.1:9/nothing.iso"}
        host.ok("POST", f"/v1/nodes/{host.uuid}/vmedia", body)
        assert until(lambda: host.node()["last_error"] is not None)


def test_a_host_is_registered_powered_inspected_and_deprovisioned(operator: Operator, iso: str) -> None:
    node = operator.register()
    for kind, name in {**operator.interfaces, "firmware_interface": "redfish", "raid_interface": "redfish"}.items():
        assert node[kind] == name
    assert operator.node()["automated_clean"] is False

    for target, state in (("power on", "power on"), ("power off", "power off")):
        assert operator.power(target) == 202
        assert until(lambda state=state: operator.node()["power_state"] == state)  # type: ignore[misc]

    status, _ = operator.send("GET", f"/v1/nodes/{operator.uuid}/inventory")
    assert status == 404  # its sign that no inspection was started yet
    operator.provision("inspect")
    operator.reconcile("inspect wait", {})
    nic = {"name": "eth0", "mac_address": mac(operator.number), "ipv4_address": "192.0.2.7"}
    boot = {"pxe_interface": mac(operator.number), "current_boot_mode": "uefi"}
    inventory = {"interfaces": [nic], "cpu": {"count": 8, "architecture": "x86_64"}, "memory": {"physical_mb": 4096}}
    operator.ok("POST", "/v1/continue_inspection", {"inventory": {**inventory, "disks": [], "boot": boot}})
    operator.reconcile("manageable", {})
    stored = operator.ok("GET", f"/v1/nodes/{operator.uuid}/inventory")["inventory"]
    assert (stored["cpu"]["count"], stored["memory"]["physical_mb"]) == (8, 4096)

    attach_data(operator, iso)

    operator.reconcile("available", {"manageable": lambda: operator.provision("provide")})
    assert operator.power("power off") == 202
    assert until(lambda: operator.send("DELETE", f"/v1/nodes/{operator.uuid}")[0] == 204)
    assert operator.send("GET", f"/v1/nodes/{operator.uuid}")[0] == 404
