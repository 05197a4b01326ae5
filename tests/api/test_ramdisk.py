"""Lookup and heartbeat of a ramdisk."""

from __future__ import annotations

import math
import uuid
from typing import Any

import pytest

from ferroscope.api.rate_limit import GUESSES_PER_FAILURE
from ferroscope.api.routes import ROUTES
from ferroscope.contracts.store import Query
from ferroscope.core.lookup import MAX_MACS
from ferroscope.core.states import Event
from ferroscope_client.core import json_safety
from tests.api.service import Client, Service, callback_body, fault
from tests.support import examples

GENERIC = "Resource could not be found."


def call(service: Service, body: Any, *, version: str | None = None, query: str = "") -> Any:
    return service.client(version).post(f"/v1/continue_inspection{query}", body)


def lookup(client: Client, query: str) -> Any:
    return client.get(f"/v1/lookup?{query}")


def test_lookup_gives_the_token_once(service: Service, waiting: tuple[str, str]) -> None:
    ident, mac = waiting
    answer = lookup(service.bare_metal, f"addresses={examples.mac()},{mac.upper()}")
    assert answer.status_code == 200
    assert answer.json["node"]["uuid"] == ident
    assert set(answer.json["node"]) == {"uuid", "properties", "instance_info", "driver_internal_info", "links"}
    assert len(answer.json["config"]["agent_token"]) >= 32
    again = lookup(service.bare_metal, f"node_uuid={ident}&addresses={mac}")
    assert again.json["config"]["agent_token"] == "******"
    assert call(service, callback_body(mac), version="1.84").json["config"]["agent_token"] == "******"
    old = lookup(service.client("1.61"), f"addresses={mac}")
    assert old.json["config"]["agent_token"] is None


def test_lookup_finds_only_nodes_that_may_ask(service: Service, waiting: tuple[str, str]) -> None:
    ident, mac = waiting
    for event, status in ((Event.CONTINUE, 200), (Event.FINISH, 404)):
        service.step(ident, event)
        answer = lookup(service.bare_metal, f"addresses={mac}")
        assert answer.status_code == status
    assert fault(answer) == GENERIC
    assert fault(lookup(service.bare_metal, f"addresses={examples.mac()}")) == GENERIC


def test_bad_lookups(service: Service) -> None:
    for version, query, status in [
        ("1.95", "", 400),
        ("1.95", "addresses=nonsense", 400),
        ("1.21", "addresses=52:54:00:00:00:01", 404),
    ]:
        assert lookup(service.client(version), query).status_code == status, query


def test_heartbeat_needs_the_token(service: Service, waiting: tuple[str, str]) -> None:
    ident, mac = waiting
    token = lookup(service.bare_metal, f"addresses={mac}").json["config"]["agent_token"]
    beat = {"callback_url": "https://192.0.2.9:9999", "agent_version": "11.0", "agent_token": token}
    answer = service.client("1.68").post(f"/v1/heartbeat/{ident}", beat)
    assert (answer.status_code, answer.content) == (202, b"")
    assert service.node(ident).internal["agent"]["url"] == "https://192.0.2.9:9999"
    for body, status in (
        (beat | {"agent_token": "x" * 43}, 404),
        (beat | {"agent_token": None}, 400),
        ({"callback_url": "https://192.0.2.9:9999"}, 400),
        ({"agent_token": token}, 400),
        (beat | {"callback_url": "ftp://x"}, 400),
        (beat | {"callback_url": "https://[x"}, 400),
        (beat | {"agent_status": "bored"}, 400),
        (beat | {"colour": "red"}, 400),
    ):
        assert service.bare_metal.post(f"/v1/heartbeat/{ident}", body).status_code == status, body
    unknown = service.bare_metal.post(f"/v1/heartbeat/{uuid.uuid4()}", beat)
    assert (unknown.status_code, fault(unknown)) == (404, GENERIC)
    assert service.bare_metal.post("/v1/heartbeat", beat | {"node_ident": ident}).status_code == 202
    assert service.bare_metal.post("/v1/heartbeat", beat | {"node_ident": ident, "agent_token": "x"}).status_code == 404
    assert service.client("1.35").post(f"/v1/heartbeat/{ident}", beat).status_code == 400
    assert service.client("1.21").post(f"/v1/heartbeat/{ident}", beat).status_code == 404


def test_token_ends_with_its_inspection(service: Service, waiting: tuple[str, str]) -> None:
    ident, mac = waiting
    token = lookup(service.bare_metal, f"addresses={mac}").json["config"]["agent_token"]
    beat = {"callback_url": "https://192.0.2.9:9999", "agent_token": token}
    service.fail(ident)
    assert service.bare_metal.post(f"/v1/heartbeat/{ident}", beat).status_code == 404
    service.wait(ident, mac=mac)
    assert service.bare_metal.post(f"/v1/heartbeat/{ident}", beat).status_code == 404
    assert lookup(service.bare_metal, f"addresses={mac}").json["config"]["agent_token"] != "******"


def test_a_lookup_tells_no_more_than_a_ramdisk_reads(service: Service, waiting: tuple[str, str]) -> None:
    ident, mac = waiting
    hint = {"serial": "S1"}
    answer = service.bare_metal.patch(
        f"/v1/nodes/{ident}",
        {"op": "add", "path": "/properties/rack", "value": "secret-rack-7"},
        {"op": "add", "path": "/properties/root_device", "value": hint},
    )
    assert answer.status_code == 200
    node = lookup(service.bare_metal, f"addresses={mac}").json["node"]
    assert (node["properties"], node["instance_info"], node["driver_internal_info"]) == ({"root_device": hint}, {}, {})


def _macs(count: int) -> str:
    return ",".join(f"52:54:77:00:{number >> 8:02x}:{number & 255:02x}" for number in range(count))


def test_a_lookup_takes_as_many_addresses_as_a_callback(service: Service) -> None:
    assert lookup(service.bare_metal, f"addresses={_macs(MAX_MACS)}").status_code == 404
    assert lookup(service.bare_metal, f"addresses={_macs(MAX_MACS + 1)}").status_code == 400
    callback = [callback_body(*_macs(number).split(",")) for number in (MAX_MACS, MAX_MACS + 1)]
    assert [service.call_back(body).status_code for body in callback] == [404, 400]


def test_many_guesses_in_one_call_count_as_many_failures(sqlite_url: str) -> None:
    service = Service(sqlite_url, failure_burst=4, failure_rate=0.001)
    client, attacker = service.bare_metal, "198.51.100.1"
    assert client.get(f"/v1/lookup?addresses={_macs(MAX_MACS)}", remote_addr=attacker).status_code == 404
    assert client.get(f"/v1/lookup?addresses={examples.mac()}", remote_addr=attacker).status_code == 429


def test_guessing_is_limited_by_source_and_machines_that_are_waited_for_get_through(sqlite_url: str) -> None:
    service = Service(sqlite_url, failure_burst=3, failure_rate=0.1)
    mac = service.wait(service.enrol())
    client, attacker, other = service.bare_metal, "198.51.100.1", "198.51.100.2"
    guesses = [client.get(f"/v1/lookup?addresses={examples.mac()}", remote_addr=attacker) for _ in range(5)]
    assert [answer.status_code for answer in guesses] == [404, 404, 404, 429, 429]
    assert 1 <= int(guesses[-1].headers["Retry-After"]) <= 10
    # A machine that is waited for may be behind the same address.
    assert client.get(f"/v1/lookup?addresses={mac}", remote_addr=attacker).status_code == 200
    assert client.get(f"/v1/lookup?addresses={mac}", remote_addr=other).status_code == 200
    refused = callback_body(examples.mac())
    assert client.post("/v1/continue_inspection", refused, remote_addr=attacker).status_code == 429
    assert client.post("/v1/continue_inspection", refused, remote_addr=other).status_code == 404
    many = callback_body(examples.mac())
    many["inventory"]["interfaces"] += [
        {"name": f"e{n}", "mac_address": examples.mac()} for n in range(GUESSES_PER_FAILURE)
    ]
    many["inventory"]["interfaces"][0]["mac_address"] = mac
    assert client.post("/v1/continue_inspection", many, remote_addr=attacker).status_code == 429
    # The very machine that is waited for, behind the same address.
    assert client.post("/v1/continue_inspection", callback_body(mac), remote_addr=attacker).status_code == 202


def test_the_body_of_a_source_that_has_to_wait_is_not_decoded(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service(sqlite_url, failure_burst=3, failure_rate=0.001)
    mac = service.wait(service.enrol())
    client, attacker = service.bare_metal, "198.51.100.1"
    for _ in range(4):
        client.get(f"/v1/lookup?addresses={examples.mac()}", remote_addr=attacker)
    decoded = []
    monkeypatch.setattr(json_safety, "check_size", lambda raw, *_limits: decoded.append(raw))
    for path in ("/v1/continue_inspection", "/v1/continue"):
        for body in (callback_body(examples.mac()), {"inventory": {"interfaces": [{"mac_address": "?"}]}}, {}):
            port = service.introspection if path == "/v1/continue" else client
            assert port.post(path, body, remote_addr=attacker).status_code == 429
    assert decoded == []
    # A machine that is waited for may be behind the same address, also with odd firmware.
    odd = callback_body(mac)
    odd["inventory"]["system_vendor"] = {"serial_number": "A\x01B", "load": math.nan}
    assert client.post("/v1/continue_inspection", odd, remote_addr=attacker).status_code == 202
    assert decoded


_FAILING: dict[str, tuple[str, Any]] = {
    "POST /v1/continue_inspection": ("/v1/continue_inspection", callback_body(examples.mac())),
    "POST /v1/continue": ("/v1/continue", callback_body(examples.mac())),
    "GET /v1/lookup": (f"/v1/lookup?addresses={examples.mac()}", None),
    "GET /v1/ramdisk_parameters/{node}/disk.img": (f"/v1/ramdisk_parameters/{uuid.uuid4()}/disk.img", None),
    "GET /v1/ramdisk_parameters/{node}/{key}/disk.img": (f"/v1/ramdisk_parameters/{uuid.uuid4()}/abc/disk.img", None),
    "GET /v1/media/{name}": ("/v1/media/none.iso", None),
    "GET /v1/boot.ipxe": (f"/v1/boot.ipxe?mac={examples.mac()}", None),
    "POST /v1/heartbeat": ("/v1/heartbeat", {"node_ident": str(uuid.uuid4())}),
    "POST /v1/heartbeat/{node}": (f"/v1/heartbeat/{uuid.uuid4()}", {}),
}


def _fail(service: Service, endpoint: str, source: str) -> int:
    """Make a call that fails; return its status."""
    method, path = endpoint.partition(" ")[0], _FAILING[endpoint][0]
    body = _FAILING[endpoint][1]
    if "heartbeat" in path:
        body = {"callback_url": "https://192.0.2.9:9999", "agent_token": "x" * 43} | body
    client = service.introspection if path == "/v1/continue" else service.bare_metal
    return int(client.call(method, path, body, remote_addr=source).status_code)


@pytest.mark.parametrize("endpoint", [f"{route.method} {route.path}" for route in ROUTES if route.ramdisk])
def test_failures_of_every_call_of_ramdisks_are_limited(sqlite_url: str, endpoint: str) -> None:
    service = Service(sqlite_url, failure_burst=3, failure_rate=0.0001)
    attacker, other = "198.51.100.1", "198.51.100.2"
    failed = 200 if "boot.ipxe" in endpoint else 400 if endpoint == "POST /v1/continue" else 404
    assert [_fail(service, endpoint, attacker) for _ in range(5)] == [failed] * 3 + [429] * 2
    assert _fail(service, endpoint, other) == failed


def test_a_ramdisk_with_its_token_is_heard_behind_the_address_of_whoever_guesses(sqlite_url: str) -> None:
    service = Service(sqlite_url, failure_burst=3, failure_rate=0.0001)
    ident, attacker = service.enrol(), "198.51.100.1"
    mac = service.wait(ident)
    token = lookup(service.bare_metal, f"addresses={mac}").json["config"]["agent_token"]
    beat = {"callback_url": "https://192.0.2.9:9999", "agent_token": token}
    for _ in range(50):
        _fail(service, "POST /v1/heartbeat/{node}", attacker)
    wrong = service.bare_metal.post(f"/v1/heartbeat/{ident}", beat | {"agent_token": "x"}, remote_addr=attacker)
    assert wrong.status_code == 429
    assert service.bare_metal.post(f"/v1/heartbeat/{ident}", beat, remote_addr=attacker).status_code == 202
    # But who asks by what can be guessed is not answered any more.
    assert service.bare_metal.get(f"/v1/lookup?addresses={mac}", remote_addr=attacker).status_code == 429


def test_refused_heartbeats_write_nothing_but_an_entry_a_minute(
    service: Service, waiting: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ident, _ = waiting
    beat = {"callback_url": "https://192.0.2.9:9999", "agent_token": "x" * 43}
    writes, write = list[object](), service.store.write
    monkeypatch.setattr(
        service.store, "write", lambda *args, **options: (writes.append(args), write(*args, **options))[1]
    )
    for path in (f"/v1/heartbeat/{ident}", f"/v1/heartbeat/{uuid.uuid4()}"):
        assert [service.bare_metal.post(path, beat).status_code for _ in range(20)] == [404] * 20
    assert len(writes) == 1
    entries = service.store.read(lambda tx: tx.journal.list(Query(filters={"node": ident, "step": "ramdisk-refused"})))
    assert [entry.message for entry in entries] == ["heartbeat with a wrong token"]
