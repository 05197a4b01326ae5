"""Machines that call without having been asked: discovery, its limits, the inbox, machines in use."""

from __future__ import annotations

import concurrent.futures
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import structlog.testing

from ferroscope.config.options import DiscoverySettings, InspectorSettings
from ferroscope.contracts.store import Query
from ferroscope.core.delivery import Fail
from ferroscope.core.model import Node
from ferroscope.core.states import Event
from ferroscope_client.core.reasons import Reason
from ferroscope_client.core.states import Provision, State
from tests.api.service import Service, callback_body, caller, fault
from tests.support import examples

Make = Callable[..., Service]


def started(url: str, *, permit_active: bool = False, **options: Any) -> Service:
    """Return one more api process on the same database; options are of ``[auto_discovery]``."""
    discovery = DiscoverySettings(**({"enabled": True, "driver": "fake-hardware"} | options))
    inspector = InspectorSettings(permit_active=permit_active)
    return Service(url, sections={"auto_discovery": discovery, "inspector": inspector})


@pytest.fixture
def make(sqlite_url: str) -> Make:
    return partial(started, sqlite_url)


@pytest.fixture
def make_everywhere(database_url: str) -> Make:
    return partial(started, database_url)


def call(service: Service, body: Any, query: str = "") -> Any:
    return service.call_back(body, version="1.84" if query else None, query=query)


def nodes(service: Service) -> list[Node]:
    return list(service.store.read(lambda tx: tx.nodes.list(Query())))


def finish(service: Service, ident: str) -> None:
    service.consume()
    service.step(ident, Event.CONTINUE)
    service.step(ident, Event.FINISH)


def test_nobody_is_discovered_unless_that_is_switched_on(make: Make) -> None:
    service = make(enabled=False)
    assert call(service, callback_body(examples.mac())).status_code == 404
    assert nodes(service) == []


def test_an_unknown_machine_becomes_a_node_that_waits_in_the_inbox(make: Make) -> None:
    service = make()
    macs = [examples.mac() for _ in range(3)]
    body = callback_body(*macs, bmc_address="192.0.2.7", bmc_v6address="2001:db8::7/64")
    answer = call(service, body)
    assert answer.status_code == 202
    (node,) = nodes(service)
    assert caller(answer) == node.uuid
    assert (node.state, node.provision_state) == (State.ENROLLING, Provision.ENROLL)
    assert (node.auto_discovered, node.inbox, node.driver) == (True, True, "fake-hardware")
    assert node.driver_info == {"bmc_address": "192.0.2.7"}
    (request,) = service.pending(node.uuid)
    assert request.event is Event.CONTINUE
    stored = service.store.read(lambda tx: tx.data.load(node.inspection or "", ("inventory", "unprocessed")))
    assert json.loads(stored["inventory"]) == body["inventory"]
    assert json.loads(stored["unprocessed"])["auto_discovered"] is True
    problems = service.bare_metal.get("/v1/status").json["problems"]
    assert [one["verdict"] for one in problems if one["code"] == "inbox"] == ["note"]
    shown = service.bare_metal.get(f"/v1/nodes/{node.uuid}").json
    assert (shown["auto_discovered"], shown["inbox"], shown["provision_state"]) == (True, True, "enroll")


def test_the_discovered_node_stays_in_enroll_when_its_data_was_processed(make: Make) -> None:
    service = make()
    ident = caller(call(service, callback_body(examples.mac())))
    finish(service, ident)
    node = service.node(ident)
    assert (node.state, node.provision_state, node.inbox) == (State.FINISHED, Provision.ENROLL, True)


def test_a_repeated_first_call_is_answered_as_the_first_was(make: Make) -> None:
    service, body = make(), callback_body(examples.mac())
    first = call(service, body)
    again = call(service, body)
    assert caller(again) == caller(first)
    assert again.json.keys() == first.json.keys()
    finish(service, caller(first))
    assert caller(call(service, body)) == caller(first)
    assert len(nodes(service)) == 1


def test_another_call_of_a_discovered_machine_makes_no_second_node(make: Make) -> None:
    service, mac = make(), examples.mac()
    ident = caller(call(service, callback_body(mac)))
    finish(service, ident)
    assert call(service, callback_body(examples.mac(), mac, serial="2")).status_code == 404
    assert [node.uuid for node in nodes(service)] == [ident]


def test_a_discovered_machine_whose_data_was_no_good_may_call_again(make: Make) -> None:
    service, mac = make(), examples.mac()
    ident = caller(call(service, callback_body(mac)))
    service.consume()
    service.step(ident, Event.CONTINUE)
    service.step(ident, Event.FAIL, Fail(Reason.RAMDISK_ERROR, "it was ill"))
    assert service.node(ident).provision_state is Provision.ENROLL
    assert caller(call(service, callback_body(mac, serial="2"))) == ident
    assert service.node(ident).state is State.ENROLLING
    assert len(service.pending(ident)) == 1


def test_concurrent_first_calls_of_one_machine_make_one_node(make_everywhere: Make) -> None:
    services = [make_everywhere() for _ in range(4)]
    body = callback_body(*(examples.mac() for _ in range(4)))
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda number: call(services[number % 4], body), range(48)))
    assert {answer.status_code for answer in answers} == {202}
    (node,) = nodes(services[0])
    assert {caller(answer) for answer in answers} == {node.uuid}
    assert len(services[0].pending(node.uuid)) == 1


def test_machines_that_share_a_mac_never_become_two_nodes(make_everywhere: Make) -> None:
    services, shared = [make_everywhere(), make_everywhere()], examples.mac()
    bodies = [callback_body(shared, examples.mac(), serial=str(number)) for number in range(16)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda pair: call(services[pair[0] % 2], pair[1]), enumerate(bodies)))
    assert {answer.status_code for answer in answers} <= {202, 404}
    assert len(nodes(services[0])) == 1


def test_concurrent_first_calls_of_many_machines_make_a_node_of_each(make_everywhere: Make) -> None:
    services = [make_everywhere(), make_everywhere()]
    bodies = [callback_body(examples.mac(), examples.mac()) for _ in range(20)] * 3
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda pair: call(services[pair[0] % 2], pair[1]), enumerate(bodies)))
    assert {answer.status_code for answer in answers} == {202}
    assert len({caller(answer) for answer in answers}) == len(nodes(services[0])) == 20


def test_a_known_machine_that_is_not_waited_for_is_not_discovered(make: Make) -> None:
    service = make()
    ident, mac = service.enrol(), examples.mac()
    service.bare_metal.post("/v1/ports", {"node_ident": ident, "address": mac})
    assert call(service, callback_body(mac)).status_code == 404
    assert [node.uuid for node in nodes(service)] == [ident]


def test_unknown_machines_are_limited_by_the_minute_over_all_processes(make_everywhere: Make) -> None:
    services = [make_everywhere(max_per_minute=5), make_everywhere(max_per_minute=5)]
    with structlog.testing.capture_logs() as logs, concurrent.futures.ThreadPoolExecutor(8) as pool:
        bodies = [callback_body(examples.mac()) for _ in range(60)]
        answers = list(pool.map(lambda pair: call(services[pair[0] % 2], pair[1]), enumerate(bodies)))
    assert {answer.status_code for answer in answers} == {202, 404}
    assert 5 <= len(nodes(services[0])) <= 10  # the minute may have ended meanwhile
    refusals = [line for line in logs if line["event"] == "discovery refused"]
    assert len(refusals) <= 2 * 2
    assert {line["reason"] for line in refusals} == {"discovery-limited"}
    assert "max_per_minute" in refusals[0]["message"]


def test_unknown_machines_are_limited_by_number_and_let_in_when_somebody_took_some_over(make: Make) -> None:
    service = make(max_waiting=2)
    idents = [caller(call(service, callback_body(examples.mac()))) for _ in range(2)]
    assert call(service, callback_body(examples.mac())).status_code == 404
    assert len(nodes(service)) == 2
    finish(service, idents[0])
    assert service.bare_metal.post(f"/v1/nodes/{idents[0]}/reject").status_code == 204
    other = make(max_waiting=2)  # the first process has closed its door for a second
    assert call(other, callback_body(examples.mac())).status_code == 202


def test_a_flood_does_not_keep_known_machines_out(make: Make) -> None:
    service = make(max_per_minute=1)
    ident = service.enrol()
    mac = service.wait(ident)
    for _ in range(30):
        call(service, callback_body(examples.mac()))
    assert caller(call(service, callback_body(mac))) == ident


def test_nodes_in_the_inbox_take_no_verb_until_they_are_approved(make: Make) -> None:
    service = make()
    ident = caller(call(service, callback_body(examples.mac())))
    finish(service, ident)
    for verb in ("manage", "inspect", "provide"):
        answer = service.bare_metal.put(f"/v1/nodes/{ident}/states/provision", {"target": verb})
        assert answer.status_code == 409
        assert f"POST /v1/nodes/{ident}/approve" in fault(answer)
    assert service.introspection.post(f"/v1/introspection/{ident}").status_code == 409
    assert [node["uuid"] for node in service.bare_metal.get("/v1/nodes?inbox=true").json["nodes"]] == [ident]
    for _ in range(2):
        assert service.bare_metal.post(f"/v1/nodes/{ident}/approve").status_code == 204
    assert service.bare_metal.get("/v1/nodes?inbox=true").json["nodes"] == []
    assert service.bare_metal.get("/v1/nodes?auto_discovered=true").json["nodes"][0]["uuid"] == ident
    answer = service.bare_metal.put(f"/v1/nodes/{ident}/states/provision", {"target": "manage"})
    assert answer.status_code == 202
    steps = [entry.step for entry in service.store.read(lambda tx: tx.journal.list(Query(filters={"node": ident})))]
    assert steps.count("approved") == 1


def test_with_approve_always_nothing_waits(make: Make) -> None:
    service = make(approve="always")
    ident = caller(call(service, callback_body(examples.mac())))
    assert service.node(ident).inbox is False


def test_a_rejected_machine_does_not_come_back_until_it_is_readmitted(make: Make) -> None:
    service = make()
    macs = [examples.mac(), examples.mac()]
    ident = caller(call(service, callback_body(*macs)))
    assert service.bare_metal.post(f"/v1/nodes/{ident}/reject").status_code == 204
    assert nodes(service) == []
    assert call(service, callback_body(examples.mac(), macs[0], serial="2")).status_code == 404
    listed = service.bare_metal.get("/v1/rejections").json["rejections"]
    assert [(one["address"], one["node"]) for one in listed] == [(macs[0], ident)]
    assert service.bare_metal.delete(f"/v1/rejections/{macs[0].upper()}").status_code == 204
    assert service.bare_metal.delete(f"/v1/rejections/{macs[1]}").status_code == 404
    assert service.bare_metal.delete("/v1/rejections/nonsense").status_code == 400
    assert call(service, callback_body(*macs)).status_code == 202


def test_a_protected_machine_is_not_rejected(make: Make) -> None:
    service = make()
    ident = caller(call(service, callback_body(examples.mac())))
    service.alter(ident, attributes={"protected": True})
    assert service.bare_metal.post(f"/v1/nodes/{ident}/reject").status_code == 403
    assert service.bare_metal.get("/v1/rejections").json["rejections"] == []


def test_only_discovered_nodes_are_approved_or_rejected(make: Make) -> None:
    service = make()
    ident = service.enrol()
    assert service.bare_metal.post(f"/v1/nodes/{ident}/approve").status_code == 409
    assert service.bare_metal.post(f"/v1/nodes/{ident}/reject").status_code == 409
    assert service.bare_metal.post(f"/v1/nodes/{examples.uuid()}/approve").status_code == 404
    found = caller(call(service, callback_body(examples.mac())))
    service.bare_metal.post(f"/v1/nodes/{found}/approve")
    finish(service, found)
    service.bare_metal.put(f"/v1/nodes/{found}/states/provision", {"target": "manage"})
    assert service.bare_metal.post(f"/v1/nodes/{found}/reject").status_code == 409


def in_use(service: Service) -> tuple[str, str]:
    ident = service.enrol()
    mac = service.wait(ident)
    call(service, callback_body(mac))
    service.finish(ident)
    assert service.bare_metal.put(f"/v1/nodes/{ident}/states/provision", {"target": "provide"}).status_code == 202
    return ident, mac


def test_a_machine_in_use_is_refused_by_default(make: Make) -> None:
    service = make()
    _ident, mac = in_use(service)
    assert call(service, callback_body(mac, serial="2")).status_code == 404


def test_a_machine_in_use_is_inspected_without_leaving_its_state_where_that_is_permitted(make: Make) -> None:
    service = make(enabled=False, permit_active=True)
    ident, mac = in_use(service)
    before = service.node(ident)
    assert caller(call(service, callback_body(mac, serial="2"))) == ident
    during = service.node(ident)
    assert (during.state, during.provision_state) == (State.ENROLLING, Provision.AVAILABLE)
    assert during.inspection != before.inspection
    finish(service, ident)
    after = service.node(ident)
    assert (after.state, after.provision_state) == (State.FINISHED, Provision.AVAILABLE)
    assert call(service, callback_body(mac, serial="3")).status_code == 202
    service.consume()
    service.step(ident, Event.CONTINUE)
    service.step(ident, Event.FAIL, Fail(Reason.RAMDISK_ERROR, "it was ill"))
    assert service.node(ident).provision_state is Provision.AVAILABLE
    stored = service.store.read(lambda tx: tx.data.load(service.node(ident).inspection or "", ("unprocessed",)))
    assert "auto_discovered" not in json.loads(stored["unprocessed"])


def test_machines_in_use_count_against_the_limit(make: Make) -> None:
    service = make(enabled=False, permit_active=True, max_per_minute=1)
    ident, mac = in_use(service)
    answers = []
    for serial in "2345":
        answers.append(call(service, callback_body(mac, serial=serial)).status_code)
        if service.node(ident).state is State.ENROLLING:
            finish(service, ident)
    assert answers.count(202) in (1, 2)  # the minute may have ended meanwhile
