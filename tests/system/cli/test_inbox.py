"""``ferroscope node inbox | approve | reject | rejected | readmit`` against the real service."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from ferroscope.config.options import DiscoverySettings
from ferroscope.core.states import Event
from ferroscope_client.errors import Exit
from tests.api.service import Service, callback_body
from tests.support import examples
from tests.system.cli.console import Shell


@pytest.fixture
def service(sqlite_url: str, listener: tuple[Any, str]) -> Iterator[Service]:
    """Give a service that discovers machines."""
    served = Service(sqlite_url, sections={"auto_discovery": DiscoverySettings(enabled=True, driver="fake-hardware")})
    listener[0].app = served.app
    yield served
    listener[0].app = None
    served.close()


def discover(service: Service, mac: str, bmc: str = "192.0.2.7", **inventory: Any) -> str:
    """Let an unknown machine call, and process what it sends; return its node's UUID."""
    body = callback_body(mac, bmc_address=bmc, **inventory)
    ident = str(service.client(None).post("/v1/continue_inspection", body).json["uuid"])
    service.consume()
    service.step(ident, Event.CONTINUE)
    service.save_plugin_data(ident, {})
    service.step(ident, Event.FINISH)
    return ident


def test_the_inbox_shows_what_came_and_is_emptied_by_approval(service: Service, shell: Shell) -> None:
    assert shell.lines("node", "inbox")[-1] == "the inbox is empty"
    vendor = {"manufacturer": "ACME", "product_name": "Anvil 3", "serial_number": "S-1"}
    ident = discover(service, examples.mac(), system_vendor=vendor)
    (waiting,) = shell.json("node", "inbox")
    assert (waiting["uuid"], waiting["machine"]) == (ident, "ACME Anvil 3 S-1")
    assert waiting["driver_info"] == {"bmc_address": "192.0.2.7"}
    (line,) = [line for line in shell.lines("node", "inbox") if ident in line]
    assert "ACME Anvil 3 S-1" in line
    assert "192.0.2.7" in line
    assert "ferroscope node approve" in shell("node", "manage", ident, check=Exit.CONFLICT).stdout
    assert shell.json("node", "approve", ident)[0]["result"] == "approved"
    assert shell.json("node", "inbox") == []
    shell("node", "manage", ident, check=0)
    assert [node["uuid"] for node in shell.json("node", "list", "--auto-discovered")] == [ident]


def test_many_are_approved_by_a_pattern_of_the_suggested_names(service: Service, shell: Shell) -> None:
    idents = {}
    for number, serial in enumerate(("DY4/1", "DY4/2", "X9")):
        idents[serial] = discover(service, examples.mac(), f"192.0.2.{number}")
        service.learn(idents[serial], {"system_vendor": {"serial_number": serial}})
    assert {node["suggested_name"] for node in shell.json("node", "inbox")} == {"dy4-1", "dy4-2", "x9"}
    assert len(shell.json("node", "approve", "dy4-*", "--suggested-names")) == 2
    assert shell.json("node", "show", "dy4-1")["uuid"] == idents["DY4/1"]
    assert [node["uuid"] for node in shell.json("node", "inbox")] == [idents["X9"]]
    assert shell.json("node", "approve", "--all")[0]["uuid"] == idents["X9"]
    assert shell.json("node", "inbox") == []


def test_a_rejected_machine_is_listed_and_may_be_readmitted(service: Service, shell: Shell) -> None:
    mac = examples.mac()
    ident = discover(service, mac)
    assert shell.json("node", "reject", ident)[0]["result"] == "rejected"
    assert shell.json("node", "list") == []
    (rejected,) = shell.json("node", "rejected")
    assert (rejected["address"], rejected["node"]) == (mac, ident)
    assert service.client(None).post("/v1/continue_inspection", callback_body(mac)).status_code == 404
    assert f"{mac} can be discovered again" in shell.lines("node", "readmit", mac)
    assert shell.json("node", "rejected") == []
    shell("node", "readmit", mac, check=Exit.NOT_FOUND)
    discover(service, mac)


def test_the_source_is_shown_and_all_of_it_is_rejected(service: Service, shell: Shell) -> None:
    for source in ("192.0.2.66", "192.0.2.66", "192.0.2.8"):
        body = callback_body(examples.mac())
        assert service.client(None).post("/v1/continue_inspection", body, remote_addr=source).status_code == 202
    assert sorted(node["discovery"]["source"] for node in shell.json("node", "inbox"))[0] == "192.0.2.66"
    shell("node", "reject", "--source", "192.0.2.66", "--all", check=Exit.USAGE)
    assert len(shell.json("node", "reject", "--source", "192.0.2.66")["rejected"]) == 2
    assert [node["discovery"]["source"] for node in shell.json("node", "inbox")] == ["192.0.2.8"]
    assert {one["source"] for one in shell.json("node", "rejected")} == {"192.0.2.66"}


def test_held_data_is_shown_with_what_differs_and_who_sent_it_and_approved_or_rejected(
    service: Service, shell: Shell
) -> None:
    idents = {}
    for name in ("replaced", "spoofed"):
        ident, mac = service.enrol(name=name), examples.mac()
        service.wait(ident, mac=mac)
        identity = {"serial": f"OLD-{name}", "uuid": None, "macs": [mac]}
        known = service.node(ident)
        internal = known.internal | {"machine_identity": identity}
        service.store.write(lambda tx, known=known, i=internal: tx.nodes.update(replace(known, internal=i)))  # type: ignore[misc]
        body = callback_body(mac, system_vendor={"serial_number": f"NEW-{name}"})
        answer = service.client(None).post("/v1/continue_inspection", body, remote_addr="198.51.100.66")
        assert answer.status_code == 202
        idents[name] = ident
    held = {node["name"]: node["held"] for node in shell.json("node", "inbox")}
    assert {name: (one["source"], one["message"]) for name, one in held.items()} == {
        name: ("198.51.100.66", f"serial number NEW-{name}, was OLD-{name}") for name in idents
    }
    assert "NEW-replaced" in "".join(shell.lines("node", "inbox"))
    assert shell.json("node", "approve", "replaced")[0]["result"] == "approved"
    assert shell.json("node", "reject", "spoofed")[0]["result"] == "rejected"
    assert shell.json("node", "inbox") == []
    assert [request.event for request in service.pending(idents["replaced"])][-1] is Event.CONTINUE
    assert [request.event for request in service.pending(idents["spoofed"])][-1] is Event.FAIL
    assert service.node(idents["spoofed"]).uuid == idents["spoofed"]  # it is not deleted
