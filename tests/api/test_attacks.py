"""Attacks that need no credentials, each as somebody tried it: none of them harms."""

from __future__ import annotations

import base64
import random
from typing import Any

import pytest

from ferroscope.api.baremetal import discovery
from ferroscope.config.options import DiscoverySettings
from ferroscope.core import lookup
from ferroscope.core.boot import POWER_ON
from ferroscope.core.delivery import Fail
from ferroscope.core.model import Entry
from ferroscope.core.states import Event
from ferroscope_client.core.reasons import Reason
from tests.api.published import add, remove, replace
from tests.api.service import Service, fault
from tests.support import examples


def call(service: Service, *macs: str, source: str = "192.0.2.99", **inventory: Any) -> Any:
    """Call back as a ramdisk does, from this address."""
    nics = [{"name": f"e{number}", "mac_address": mac} for number, mac in enumerate(macs)]
    body = {"inventory": {"interfaces": nics, "cpu": {"architecture": "x86_64"}, **inventory}}
    return service.bare_metal.post("/v1/continue_inspection", body, remote_addr=source)


def wait(service: Service, ident: str) -> None:
    """Bring a node to waiting, as it is."""
    service.bare_metal.put(f"/v1/nodes/{ident}/states/provision", {"target": "inspect"})
    service.consume()
    service.step(ident, Event.WAIT)


def steps(service: Service, ident: str) -> list[tuple[str, str | None, str | None]]:
    """Return step, reason and source of what callers did, as the timeline has it."""
    timeline = service.bare_metal.get(f"/v1/nodes/{ident}/timeline").json
    entries = [entry for one in timeline["inspections"] for entry in one["entries"]] + timeline["entries"]
    return [
        (entry["step"], entry["reason"], entry["detail"].get("source"))
        for entry in entries
        if entry["step"].startswith(("callback", "seen", "claimed"))
    ]


@pytest.mark.parametrize("scope", ["a" * 300, "x\ny", "x]@127.0.0.1:1", "b" * 1_000_000], ids=repr)
def test_a_scope_of_an_ipv6_address_means_nothing_and_is_stored_nowhere(discovering: Service, scope: str) -> None:
    scope = scope[:300] if scope[0] != "b" else scope
    answer = call(discovering, examples.mac(), bmc_v6address=f"fe80::1%{scope}")
    assert answer.status_code == 202
    info = discovering.node(answer.json["node"]["uuid"]).driver_info
    assert info in ({}, {"bmc_address": "fe80::1"})
    assert len(str(call(discovering, "no mac").json)) < 1000


STORED = {"redfish_address": "https://192.0.2.10", "redfish_username": "root", "redfish_password": "Sup3r-S3cret!"}


@pytest.mark.parametrize(
    "operations",
    [
        [replace("/driver_info/redfish_address", "http://127.0.0.1:9")],
        [replace("/driver_info", STORED | {"redfish_address": "https://evil", "redfish_password": "******"})],
        [
            replace("/driver_info/redfish_address", "https://evil"),
            replace("/driver_info/redfish_password", "******"),
        ],
        [add("/driver_info/redfish_verify_ca", False)],
        [add("/driver_info/redfish_auth_type", "basic")],
        [replace("/driver", "sim")],
        [add("/driver_info/ipmi_bridging", "single")],
    ],
    ids=lambda operations: str(operations[0]["path"]),
)
def test_a_stored_password_cannot_be_sent_to_another_place(service: Service, operations: list[Any]) -> None:
    ident = service.enrol(driver_info=STORED)
    answer = service.bare_metal.patch(f"/v1/nodes/{ident}", *operations)
    assert answer.status_code == 400
    assert "redfish_password" in fault(answer)
    assert "Sup3r" not in answer.text
    assert service.node(ident).driver_info == STORED


@pytest.mark.parametrize(
    "operations",
    [
        [
            replace("/driver_info/redfish_address", "https://192.0.2.11"),
            add("/driver_info/redfish_password", "Sup3r-S3cret!"),
        ],
        [replace("/driver_info", {"redfish_address": "https://a", "redfish_password": "another"})],
        [remove("/driver_info/redfish_password"), remove("/driver_info/redfish_address")],
        [add("/driver_info/redfish_verify_ca", True)],
        [replace("/driver_info/redfish_username", "other")],
        [replace("/driver_info", STORED | {"redfish_password": "******"})],
    ],
    ids=lambda operations: str(operations[0].get("value", "remove")),
)
def test_a_change_with_its_own_secrets_or_without_any_goes_through(service: Service, operations: list[Any]) -> None:
    ident = service.enrol(driver_info=STORED)
    answer = service.bare_metal.patch(f"/v1/nodes/{ident}", *operations)
    assert answer.status_code == 200, answer.text


def test_a_machine_is_not_taken_for_one_whose_macs_are_known_by_its_bmc_address_alone(service: Service) -> None:
    ident = service.enrol(driver_info={"bmc_address": "10.99.1.2"})
    own = service.wait(ident)
    assert call(service, examples.mac(), bmc_address="10.99.1.2").status_code == 404
    assert steps(service, ident) == [("callback-refused", "lookup-bmc-alone", "192.0.2.99")]
    assert service.pending(ident) == []
    assert call(service, own, source="192.0.2.7", bmc_address="10.99.1.2").status_code == 202
    assert steps(service, ident)[-1] == ("callback", None, "192.0.2.7")


def test_a_machine_without_any_port_is_known_by_its_bmc_address(service: Service) -> None:
    ident = service.enrol(driver_info={"redfish_address": "https://[2001:db8::7]:8443"})
    wait(service, ident)
    assert call(service, examples.mac(), bmc_v6address="2001:db8::7").status_code == 202


def test_a_node_that_is_enrolled_by_its_bmc_address_gets_no_twin(discovering: Service) -> None:
    service = discovering
    ident = service.enrol(driver_info={"ipmi_address": "10.99.1.3"})
    assert call(service, examples.mac(), bmc_address="10.99.1.3").status_code == 404
    assert len(service.bare_metal.get("/v1/nodes").json["nodes"]) == 1
    assert steps(service, ident) == [("callback-refused", "lookup-not-waiting", "192.0.2.99")]
    patch = replace("/driver_info/ipmi_address", "10.99.1.4")
    assert service.bare_metal.patch(f"/v1/nodes/{ident}", patch).status_code == 200
    assert call(service, examples.mac(), bmc_address="10.99.1.4").status_code == 404
    assert call(service, examples.mac(), bmc_address="10.99.1.3").status_code == 202


def test_a_discovered_machine_with_the_bmc_of_a_known_one_is_connected_with_it(discovering: Service) -> None:
    service = discovering
    ident = service.enrol(driver_info={"ipmi_address": "10.99.1.5"})
    service.bare_metal.post("/v1/ports", {"node_uuid": ident, "address": examples.mac()})
    new = call(service, examples.mac(), bmc_address="10.99.1.5").json["node"]["uuid"]
    for one in (ident, new):
        assert ("seen-elsewhere", "lookup-conflict", "192.0.2.99") in steps(service, one)


def test_the_source_of_each_callback_is_on_the_timeline(service: Service, waiting: tuple[str, str]) -> None:
    ident, mac = waiting
    for source, serial in (("192.0.2.7", "a"), ("192.0.2.7", "a"), ("192.0.2.66", "b")):
        assert call(service, mac, source=source, system_vendor={"serial_number": serial}).status_code == 202
    assert steps(service, ident) == [
        ("callback", None, "192.0.2.7"),
        ("callback-repeated", None, "192.0.2.7"),
        ("callback-contradicted", "conflicting-callback", "192.0.2.66"),
    ]
    assert [request.payload["source"] for request in service.pending(ident)][-2:] == ["192.0.2.7", "192.0.2.66"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ('{"inventory": {"interfaces": [{"mac_address": "MAC"}', 400),
        ('{"inventory": {"interfaces": [{"mac_address": "MAC"}]}, "pad": "' + "x" * 20_000_000 + '"}', 413),
    ],
    ids=["cut off", "too large"],
)
def test_a_callback_that_makes_no_sense_is_on_the_timeline_of_its_node(
    service: Service, body: str, status: int
) -> None:
    ident = service.enrol()
    mac = service.wait(ident)
    for _ in range(5):
        answer = service.bare_metal.post("/v1/continue_inspection", body.replace("MAC", mac), remote_addr="192.0.2.7")
        assert answer.status_code == status
    assert steps(service, ident) == [("callback-refused", "callback-invalid", "192.0.2.7")]


def test_a_refusal_is_noted_once_a_minute_for_each_inspection_and_boot(service: Service) -> None:
    """A time-out names the refusal of its own inspection, also if that was restarted within the minute."""
    ident = service.enrol()
    mac = service.wait(ident)
    refused = ("callback-refused", "callback-invalid", "192.0.2.7")

    def calls() -> int:
        for _ in range(3):
            body = '{"inventory": {"interfaces": [{"mac_address": "' + mac + '"}'
            service.bare_metal.post("/v1/continue_inspection", body, remote_addr="192.0.2.7")
        return steps(service, ident).count(refused)

    assert calls() == 1
    service.step(ident, Event.FAIL, Fail(Reason.ABORTED, "another try"))
    service.wait(ident, mac=mac)
    assert calls() == 2
    node = service.store.read(lambda tx: tx.nodes.get(ident))
    booted = Entry(node=ident, inspection=node.inspection, step=POWER_ON, message="commanded power on")
    service.store.write(lambda tx: tx.journal.append([booted]))
    assert calls() == 3


def test_a_call_that_says_nothing_of_itself_is_identified_by_where_it_comes_from(service: Service) -> None:
    ident, other = service.enrol(), service.enrol()
    mac = service.wait(ident)
    service.wait(other)
    lookup = f"/v1/lookup?addresses={mac}"
    assert service.bare_metal.call("GET", lookup, remote_addr="192.0.2.7").status_code == 200
    for source in ("192.0.2.7", "192.0.2.8"):
        service.bare_metal.post("/v1/continue_inspection", {"inventory": {"interfaces": []}}, remote_addr=source)
    assert steps(service, ident) == [("callback-refused", "callback-invalid", "192.0.2.7")]
    assert steps(service, other) == []


def test_two_machines_behind_one_address_are_not_confused(service: Service) -> None:
    idents = [service.enrol(), service.enrol()]
    for ident in idents:
        service.bare_metal.call("GET", f"/v1/lookup?addresses={service.wait(ident)}", remote_addr="192.0.2.7")
    service.bare_metal.post("/v1/continue_inspection", "nonsense", remote_addr="192.0.2.7")
    assert [steps(service, ident) for ident in idents] == [[], []]


def test_a_rejection_bans_no_mac_of_another_machine(discovering: Service) -> None:
    service = discovering
    victims = [examples.mac() for _ in range(8)]
    own = examples.mac()
    fake = call(service, own, *victims, boot={"pxe_interface": own}).json["node"]["uuid"]
    service.finish(fake)
    real = call(service, victims[0], source="192.0.2.7", hostname="real")
    assert real.status_code == 404
    known = service.bare_metal.get(f"/v1/nodes/{fake}").json["driver_internal_info"]["discovery"]
    assert (known["source"], known["mac"]) == ("192.0.2.99", own)
    assert [(claim["source"], claim["macs"]) for claim in known["claims"]] == [("192.0.2.7", [victims[0]])]
    assert service.bare_metal.post(f"/v1/nodes/{fake}/reject").status_code == 204
    rejected = service.bare_metal.get("/v1/rejections").json["rejections"]
    assert [(one["address"], one["source"]) for one in rejected] == [(own, "192.0.2.99")]
    assert call(service, victims[0], source="192.0.2.7", hostname="real").status_code == 202
    assert call(service, own).status_code == 404


def test_a_mac_that_two_callers_claim_is_not_banned(discovering: Service) -> None:
    service = discovering
    victim = examples.mac()
    fake = call(service, victim, boot={"pxe_interface": victim}).json["node"]["uuid"]
    service.finish(fake)
    assert call(service, victim, source="192.0.2.7", hostname="real").status_code == 404
    assert service.bare_metal.post(f"/v1/nodes/{fake}/reject").status_code == 204
    assert call(service, victim, source="192.0.2.7", hostname="real").status_code == 202


def test_one_source_cannot_use_up_the_inbox_and_is_rejected_as_a_whole(limited: Service) -> None:
    service = limited
    answers = [call(service, examples.mac(), source="192.0.2.66").status_code for _ in range(8)]
    assert answers == [202] * 5 + [404] * 3
    assert call(service, examples.mac(), source="192.0.2.7").status_code == 202
    rejected = service.bare_metal.post("/v1/rejections", {"source": "192.0.2.66"})
    assert (rejected.status_code, len(rejected.json["nodes"])) == (200, 5)
    assert len(service.bare_metal.get("/v1/nodes?inbox=true").json["nodes"]) == 1
    assert service.bare_metal.post("/v1/rejections", {"source": "192.0.2.66"}).json["nodes"] == []
    assert call(service, examples.mac(), source="192.0.2.66").status_code == 202


def test_one_source_cannot_fill_the_database_with_few_machines(
    limited: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup, "MEAN_WAITING_BYTES", 100_000)

    def send(source: str, mac: str) -> Any:
        large = base64.b64encode(random.randbytes(200_000)).decode()
        return call(limited, mac, source=source, large=large)

    macs = [examples.mac() for _ in range(5)]
    answers = [send("192.0.2.66", mac) for mac in macs[:4]]
    assert [answer.status_code for answer in answers] == [202, 202, 202, 404]
    assert send("192.0.2.7", macs[4]).status_code == 202
    # A machine whose inspection failed may send more, within the same limit.
    node = answers[0].json["node"]["uuid"]
    limited.consume()
    limited.step(node, Event.CONTINUE)
    limited.step(node, Event.FAIL, Fail(Reason.RAMDISK_ERROR, "it was ill"))
    assert send("192.0.2.66", macs[0]).status_code == 404


def test_one_ipv6_network_is_one_source(limited: Service) -> None:
    answers = [call(limited, examples.mac(), source=f"2001:db8::{n:x}").status_code for n in range(1, 9)]
    assert answers == [202] * 5 + [404] * 3
    assert call(limited, examples.mac(), source="2001:db8:0:1::1").status_code == 202


def test_a_mac_that_only_the_inbox_claims_can_be_enrolled(discovering: Service) -> None:
    service = discovering
    mac = examples.mac()
    claimed = call(service, mac).json["node"]["uuid"]
    service.store.write(lambda tx: tx.ports.add([examples.port(service.node(claimed), address=mac)]))
    ident = service.enrol()
    answer = service.bare_metal.post("/v1/ports", {"node_uuid": ident, "address": mac})
    assert answer.status_code == 201
    assert service.bare_metal.get(f"/v1/nodes/{claimed}/ports").json["ports"] == []
    other = service.enrol()
    assert service.bare_metal.post("/v1/ports", {"node_uuid": other, "address": mac}).status_code == 409


@pytest.fixture
def limited(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> Service:
    """Return a service that takes five machines from each source."""
    monkeypatch.setattr(discovery, "MIN_WAITING_OF_SOURCE", 1)
    settings = DiscoverySettings(enabled=True, driver="fake-hardware", max_waiting=25)
    return Service(sqlite_url, sections={"auto_discovery": settings})


@pytest.fixture
def discovering(sqlite_url: str) -> Service:
    """Return a service that discovers unknown machines."""
    return Service(sqlite_url, sections={"auto_discovery": DiscoverySettings(enabled=True, driver="fake-hardware")})
