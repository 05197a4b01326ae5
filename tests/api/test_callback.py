"""The callback of a ramdisk, in both APIs."""

from __future__ import annotations

import concurrent.futures
import json
import uuid
from typing import Any

import pytest

from ferroscope.core.states import Event
from ferroscope_client.core.states import State
from tests.api.service import Service, callback_body, caller, fault, message
from tests.support import examples
from tests.support.stores import compressions

GENERIC = "Resource could not be found."


def call(service: Service, body: Any, *, version: str | None = None, query: str = "") -> Any:
    return service.call_back(body, version=version, query=query)


def test_callback_without_a_version_is_answered_with_the_uuid(service: Service, waiting: tuple[str, str]) -> None:
    ident, mac = waiting
    body = callback_body(mac.upper(), serial="ß")
    answer = call(service, body, version="1.1")
    assert (answer.status_code, answer.json) == (202, {"uuid": ident})
    (request,) = service.pending(ident)
    assert request.event is Event.CONTINUE
    node = service.node(ident)
    assert node.inspection is not None
    stored = service.store.read(lambda tx: tx.data.load(node.inspection or "", ("inventory", "unprocessed")))
    assert json.loads(stored["inventory"]) == body["inventory"]
    assert json.loads(stored["unprocessed"]) == {k: v for k, v in body.items() if k != "inventory"}
    inspection = service.store.read(lambda tx: tx.inspections.get(node.inspection or ""))
    assert len(inspection.digest or "") == 64


def test_data_is_compressed_before_the_transaction_that_stores_it(
    service: Service, waiting: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ident, mac = waiting
    found = compressions(service.store, monkeypatch)
    assert call(service, callback_body(mac)).status_code == 202
    assert found == [False, False]
    service.finish(ident)
    answer = service.introspection.post(f"/v1/introspection/{ident}/data/unprocessed", callback_body(mac))
    assert answer.status_code == 202
    assert set(found) == {False}


@pytest.mark.parametrize("version", ["1.2", "1.83"])
def test_callback_does_not_exist_between_its_versions(service: Service, waiting: tuple[str, str], version: str) -> None:
    answer = call(service, callback_body(waiting[1]), version=version)
    assert answer.status_code == 404
    assert service.pending(waiting[0]) == []


def test_newer_callback_is_answered_with_a_token_that_is_stored_as_a_hash_only(
    service: Service, waiting: tuple[str, str]
) -> None:
    ident, mac = waiting
    answer = call(service, callback_body(mac), version="1.84", query=f"?node_uuid={ident}")
    assert answer.status_code == 202
    assert answer.json["node"]["uuid"] == ident
    token = answer.json["config"]["agent_token"]
    assert len(token) >= 32
    assert answer.json["config"]["heartbeat_timeout"] == 300
    assert token not in json.dumps(service.node(ident).internal)
    assert "token_sha256" in json.dumps(service.node(ident).internal)
    shown = service.bare_metal.get(f"/v1/nodes/{ident}").json["driver_internal_info"]
    assert shown["agent"]["token_sha256"] == "******"


def test_node_uuid_needs_the_newer_version(service: Service, waiting: tuple[str, str]) -> None:
    answer = call(service, callback_body(waiting[1]), version="1.1", query=f"?node_uuid={waiting[0]}")
    assert answer.status_code == 404


def test_introspection_callback(service: Service, waiting: tuple[str, str]) -> None:
    answer = service.introspection.post("/v1/continue", callback_body(waiting[1]))
    assert (answer.status_code, answer.json) == (202, {"uuid": waiting[0]})


@pytest.mark.usefixtures("callback_version")
def test_repeated_callback_is_answered_alike_and_starts_nothing(service: Service, waiting: tuple[str, str]) -> None:
    ident, mac = waiting
    body = callback_body(mac)
    for _ in range(3):
        assert caller(call(service, body)) == ident
    assert len(service.pending(ident)) == 1
    service.consume()
    service.step(ident, Event.CONTINUE)
    assert caller(call(service, body)) == ident
    service.step(ident, Event.FINISH)
    assert caller(call(service, body)) == ident
    assert service.pending(ident) == []
    assert service.node(ident).state is State.FINISHED


def test_concurrent_repetitions_start_one_processing(everywhere: Service) -> None:
    ident = everywhere.enrol()
    body = callback_body(everywhere.wait(ident))
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: call(everywhere, body), range(16)))
    assert {answer.status_code for answer in answers} == {202}
    assert len(everywhere.pending(ident)) == 1


def test_repetition_gets_a_new_token_because_the_first_got_lost(service: Service, waiting: tuple[str, str]) -> None:
    body = callback_body(waiting[1])
    tokens = {call(service, body, version="1.84").json["config"]["agent_token"] for _ in range(2)}
    assert len(tokens) == 2
    assert "******" not in tokens


def test_different_callback_is_queued_and_does_not_replace_the_data(service: Service, waiting: tuple[str, str]) -> None:
    ident, mac = waiting
    first, second = callback_body(mac, serial="1"), callback_body(mac, serial="2")
    call(service, first)
    for _ in range(2):
        assert call(service, second).status_code == 202
    one, two = service.pending(ident)
    assert one.event is two.event is Event.CONTINUE
    assert one.payload["digest"] != two.payload["digest"]
    node = service.node(ident)
    stored = service.store.read(lambda tx: tx.data.load(node.inspection or "", ("inventory",)))
    assert json.loads(stored["inventory"]) == first["inventory"]


def test_different_callback_while_processing_is_queued(service: Service, waiting: tuple[str, str]) -> None:
    ident, mac = waiting
    call(service, callback_body(mac, serial="1"))
    service.consume()
    service.step(ident, Event.CONTINUE)
    assert call(service, callback_body(mac, serial="2")).status_code == 202
    assert [request.event for request in service.pending(ident)] == [Event.CONTINUE]


def test_callback_may_overtake_the_start(service: Service) -> None:
    ident = service.enrol()
    mac = examples.mac()
    service.bare_metal.post("/v1/ports", {"node_uuid": ident, "address": mac})
    service.bare_metal.put(f"/v1/nodes/{ident}/states/provision", {"target": "inspect"})
    assert caller(call(service, callback_body(mac))) == ident


@pytest.mark.usefixtures("callback_version")
def test_every_lookup_failure_looks_the_same(service: Service, waiting: tuple[str, str]) -> None:
    ident, mac = waiting
    other = service.enrol(name="other")
    other_mac = service.wait(other)
    idle = service.enrol()
    idle_mac = examples.mac()
    service.bare_metal.post("/v1/ports", {"node_uuid": idle, "address": idle_mac})
    answers = [
        call(service, callback_body(examples.mac())),
        call(service, callback_body(mac, other_mac) | {"boot_interface": None}),
        call(service, callback_body(idle_mac)),
        call(service, callback_body(examples.mac()), version="1.84", query=f"?node_uuid={uuid.uuid4()}"),
        call(service, callback_body(other_mac), version="1.84", query=f"?node_uuid={ident}"),
        call(service, callback_body(idle_mac), version="1.84", query=f"?node_uuid={idle}"),
    ]
    assert {answer.status_code for answer in answers} == {404}
    assert {answer.content for answer in answers} == {answers[0].content}
    assert fault(answers[0]) == GENERIC
    mine = service.introspection.post("/v1/continue", callback_body(idle_mac))
    assert (mine.status_code, message(mine)) == (400, GENERIC)  # in that API it is 400
    assert service.pending(ident) == service.pending(other) == service.pending(idle) == []


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ("", "body"),
        ("{", "JSON"),
        ("null", "object"),
        ({}, "inventory"),
        ({"inventory": {}}, "interfaces"),
        ({"inventory": {"interfaces": []}}, "interfaces"),
        ({"inventory": {"interfaces": [{"mac_address": None}, 5, None]}}, "lookup"),
        ({"inventory": {"interfaces": [{"mac_address": "x"}], "bmc_address": 5}}, "lookup"),
        ('{"inventory": {"interfaces": [{"mac_address": "x", "name": "\\ud800"}]}}', "lookup"),
        ('{"inventory": {"interfaces": [{"mac_address": "x"}], "a": 01}}', "JSON"),
        ('{"inventory": {"interfaces": [{"mac_address": "x"}]}, "deep": ' + "[" * 25 + "]" * 25 + "}", "deep"),
        ('{"inventory": {"interfaces": [{"mac_address": "x"}], "a": ' + "9" * 5000 + "}}", "lookup"),
    ],
)
def test_malformed_callback_is_400_in_both_apis(service: Service, body: Any, named: str) -> None:
    answer = call(service, body)
    assert answer.status_code == 400, answer.text
    assert named in fault(answer)
    assert service.introspection.post("/v1/continue", body).status_code == 400


def test_ramdisk_endpoints_can_be_switched_off(sqlite_url: str) -> None:
    service = Service(sqlite_url, enable_ramdisk_endpoints=False)
    for method, path in (
        ("POST", "/v1/continue_inspection"),
        ("GET", "/v1/lookup"),
        ("POST", "/v1/heartbeat/x"),
    ):
        assert service.bare_metal.call(method, path).status_code == 403
    assert service.introspection.post("/v1/continue", {}).status_code == 403


def test_callbacks_that_all_differ_do_not_fill_the_queue(service: Service, waiting: tuple[str, str]) -> None:
    ident, mac = waiting
    answers = [call(service, callback_body(mac, serial=str(number))) for number in range(20)]
    assert {answer.status_code for answer in answers} == {202}
    assert len(service.pending(ident)) == 2
