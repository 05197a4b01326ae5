"""``ferroscope sync nautobot`` with a real Nautobot."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from ferroscope.cli.exits import Exit
from ferroscope.dcim import rest
from tests.integration.api.service import Service, callback_body
from tests.integration.cli.console import Shell
from tests.support import databases, examples, nautobot
from tests.support.nautobot import Nautobot
from tests.support.servers import Server

DISKS = [{"name": "/dev/sda", "model": "PM1733", "serial": "S4YN", "vendor": "Samsung", "size": 10**12}]
SWITCH, PORT = "leaf1.example.org", "Ethernet7"


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory, shared_postgresql: Server) -> Iterator[Nautobot]:
    redis = Server("redis", "redis-of-nautobot")
    with databases.fresh(shared_postgresql, migrated=False) as url:
        made = Nautobot(tmp_path_factory.mktemp("nautobot"), shared_postgresql, redis, url.rpartition("/")[2])
        yield made
        made.close()
    redis.discard()


def inspect(service: Service, name: str, serial: str, **inventory: Any) -> list[str]:
    """Enrol and inspect a machine with two NICs, of which the first is at the switch; return their MACs."""
    uuid = service.enrol(name=name)
    macs = [service.wait(uuid), examples.mac()]
    body = callback_body(*macs, **inventory)
    body["inventory"]["system_vendor"] = {
        "manufacturer": "Dell Inc.", "product_name": "PowerEdge R650", "serial_number": serial,
    }  # fmt: skip
    answer = service.bare_metal.post("/v1/continue_inspection", body, version="1.1")
    assert answer.status_code == 202, answer.text
    service.finish(uuid, {"parsed_lldp": {"eth0": {"switch_system_name": SWITCH, "switch_port_id": PORT}}})
    return macs


def add_switch(real: Nautobot) -> str:
    """Add the switch, as its owner did; return its interface."""
    maker = real.call("POST", "dcim/manufacturers/", json={"name": "Arista"})["id"]
    kind = real.call("POST", "dcim/device-types/", json={"manufacturer": maker, "model": "7050"})["id"]
    where = {
        "location": real.list("dcim/locations")[0]["id"],
        "role": real.list("extras/roles", name="Server")[0]["id"],
    }
    active = {"status": {"name": "Active"}}
    switch = real.call("POST", "dcim/devices/", json={"name": SWITCH, "device_type": kind, **where, **active})["id"]
    body = {"device": switch, "name": PORT, "type": "25gbase-x-sfp28", **active}
    return str(real.call("POST", "dcim/interfaces/", json=body)["id"])


@pytest.mark.nautobot
@pytest.mark.timeout(3600)
def test_devices_are_as_the_inspections_found_the_machines(
    service: Service, shell: Shell, real: Nautobot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rest, "PAGE", 2)  # so that lists have several pages
    monkeypatch.setenv("NAUTOBOT_TOKEN", nautobot.TOKEN)
    macs = {name: inspect(service, name, f"SN-{name}", disks=DISKS) for name in ("a1", "a2", "a3")}
    service.enrol(name="never-inspected")
    port = add_switch(real)
    said = []

    def sync(*options: str, check: int = Exit.OK) -> list[dict[str, Any]]:
        command = ("sync", "nautobot", "--nautobot-url", real.url, "--location", "lab", "--role", "Server", *options)
        result = shell(*command, "-o", "json", check=check)
        said.append(result.output)
        return json.loads(result.stdout) if check == Exit.OK else []

    planned = sync("--dry-run")
    assert [one["name"] for one in real.list("dcim/devices")] == [SWITCH]
    done = sync()
    cables = [one for one in done if one["kind"] == "cable"]
    assert len(cables) == 1  # the others say that they are at the same port, which is taken
    assert [(one["kind"], one["name"]) for one in done if one not in cables] == [
        (one["kind"], one["name"]) for one in planned
    ]
    assert sync() == []

    devices = {one["name"]: one for one in real.list("dcim/devices", depth=1)}
    assert set(devices) == {"a1", "a2", "a3", SWITCH}
    assert (devices["a1"]["serial"], devices["a1"]["device_type"]["model"]) == ("SN-a1", "PowerEdge R650")
    interfaces = {one["name"]: one for one in real.list("dcim/interfaces", device="a1")}
    assert [interfaces[name]["mac_address"].lower() for name in ("eth0", "eth1")] == macs["a1"]
    assert real.call("GET", f"dcim/interfaces/{port}/")["cable"]["id"] == interfaces["eth0"]["cable"]["id"]
    (disk,) = real.list("dcim/inventory-items", device="a2")
    assert (disk["name"], disk["part_id"], disk["serial"]) == ("/dev/sda", "PM1733", "S4YN")

    changed_by_others = {"status": {"name": "Planned"}, "serial": "wrong", "comments": "do not touch"}
    real.call("PATCH", f"dcim/devices/{devices['a2']['id']}/", json=changed_by_others)
    (change,) = sync("--selector", "!rack")
    assert (change["kind"], change["before"], change["after"]) == ("device", {"serial": "wrong"}, {"serial": "SN-a2"})
    after = real.call("GET", f"dcim/devices/{devices['a2']['id']}/?depth=1")
    assert (after["status"]["name"], after["comments"]) == ("Planned", "do not touch")

    # A node with another name keeps its device; a machine that reports the serial number of another does not get its.
    service.bare_metal.patch("/v1/nodes/a3", {"op": "replace", "path": "/name", "value": "b3"})
    inspect(service, "thief", "SN-a1")
    sync()
    renamed = {one["name"]: one["id"] for one in real.list("dcim/devices")}
    assert renamed.keys() == {"a1", "a2", "b3", "thief", SWITCH}
    assert (renamed["a1"], renamed["b3"]) == (devices["a1"]["id"], devices["a3"]["id"])
    assert sync() == []

    monkeypatch.setenv("NAUTOBOT_TOKEN", "0123456789-wrong-token")
    sync(check=Exit.FAILURE)
    sync("--nautobot-token", nautobot.TOKEN, check=Exit.USAGE)
    assert not any(token in text for text in said for token in (nautobot.TOKEN, "wrong-token"))
