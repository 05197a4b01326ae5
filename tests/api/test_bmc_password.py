"""The route that changes a BMC's password: who may, what is stored, which nodes change together, and what it locks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sqlalchemy import text

from ferroscope.api.auth.failures import BURST_MISTYPED
from ferroscope.api.auth.identity import Identity
from ferroscope.api.baremetal import node_bmc
from ferroscope.bmc import BmcLimits, DriverOptions
from ferroscope.bmc.ipmi.driver import IpmiBmc
from ferroscope.bmc.redfish.driver import IdracBmc, RedfishBmc
from ferroscope.config.options import SecretSettings
from ferroscope.core.bmc_password import RECORD, Record
from ferroscope.core.secrets import is_encrypted
from ferroscope.core.states import Event
from ferroscope.secrets.keys import new_key
from ferroscope_client.core.passwords import PasswordProgress as State
from tests.api.callers import As, service_for
from tests.api.service import Service, fault
from tests.support import examples

OLD, NEW = "Canary-old-5f1c", "Canary-new-7d2e"
PENDING = "redfish_pending_password"
_LIMITS = DriverOptions(limits=BmcLimits(http_passwords=True))
DRIVERS = {"redfish": RedfishBmc(_LIMITS), "idrac": IdracBmc(_LIMITS), "ipmi": IpmiBmc(_LIMITS)}
SHARED = {"allow_shared_bmc": True}
INFO = {"redfish_address": "https://192.0.2.9", "redfish_username": "root", "redfish_password": OLD}


@pytest.fixture
def service(sqlite_url: str, tmp_path: Path) -> Service:
    """Return a service that encrypts."""
    file = tmp_path / "keys"
    file.write_text(new_key())
    file.chmod(0o600)
    return Service(sqlite_url, drivers=DRIVERS, sections={"secrets": SecretSettings(key_file=str(file))})


def enrol(service: Service, **info: Any) -> str:
    return service.enrol(driver=info.pop("driver", "redfish"), driver_info=INFO | info)


def put(service: Service, ident: str, password: str | None = NEW) -> Any:
    return service.bare_metal.put(f"/v1/nodes/{ident}/bmc/password", {} if password is None else {"password": password})


def state(service: Service, ident: str) -> str:
    answer = service.bare_metal.get(f"/v1/nodes/{ident}/bmc/password")
    assert answer.status_code == 200, answer.text
    return str(answer.json["state"])


def queued(service: Service, ident: str) -> list[tuple[Event, Any]]:
    return [(request.event, request.payload) for request in service.pending(ident)]


def everything_stored(service: Service) -> str:
    """Return the contents of all tables."""
    with service.backend.engine.connect() as connection:
        from ferroscope.db import schema

        return "\n".join(
            str(row)
            for table in schema.metadata.sorted_tables
            for row in connection.execute(text(f"SELECT * FROM {table.name}"))
        )


def test_the_new_password_is_stored_encrypted_before_anything_is_asked_of_the_bmc(service: Service) -> None:
    ident = enrol(service)
    answer = put(service, ident)
    assert (answer.status_code, answer.json) == (202, {"nodes": [ident]})
    node = service.node(ident)
    assert is_encrypted(node.driver_info[PENDING])
    assert is_encrypted(node.driver_info["redfish_password"])
    assert queued(service, ident) == [(Event.SET_PASSWORD, {})]
    assert state(service, ident) == State.CHANGING
    shown = service.bare_metal.get(f"/v1/nodes/{ident}").text
    timeline = service.bare_metal.get(f"/v1/nodes/{ident}/timeline").text
    audit = service.bare_metal.get("/v1/audit").text
    assert "PUT /v1/nodes/{node}/bmc/password" in audit
    for secret in (OLD, NEW):
        assert secret not in shown + timeline + audit + everything_stored(service)


@pytest.mark.parametrize("wrong", ["x" * 129, "line\nbreak-of-it"])
def test_a_text_that_is_no_password_is_refused_and_not_repeated(service: Service, wrong: str) -> None:
    ident = enrol(service)
    answer = put(service, ident, wrong)
    assert answer.status_code == 400
    assert wrong not in answer.text
    assert (queued(service, ident), PENDING in service.node(ident).driver_info) == ([], False)


def test_the_protocol_limits_its_length(service: Service) -> None:
    info = {"ipmi_address": "192.0.2.9", "ipmi_username": "root", "ipmi_password": OLD}
    ident = service.enrol(driver="ipmi", driver_info=info)
    for length, status in ((21, 400), (20, 202)):
        answer = put(service, ident, "x" * (length - 1) + "Y")
        assert answer.status_code == status, answer.text
        assert "xxxx" not in answer.text


def test_nodes_behind_one_bmc_change_together(service: Service) -> None:
    first, second = sorted(enrol(service, redfish_system_id=f"/redfish/v1/Systems/{number}") for number in (1, 2))
    third = enrol(service, driver="idrac", redfish_address="https://192.0.2.9:443", redfish_system_id="3")
    others = [
        enrol(service, redfish_username="other", allow_shared_bmc=True),
        enrol(service, redfish_address="https://192.0.2.10"),
        enrol(service, redfish_address="https://192.0.2.9:8443"),
    ]
    answer = put(service, second)
    assert set(answer.json["nodes"]) == {first, second, third}
    assert sorted(str(queued(service, one)) for one in (first, second, third)) == sorted(
        str([(Event.SET_PASSWORD, payload)]) for payload in ({}, {"probe": True}, {"probe": True})
    )
    for other in others:
        assert (queued(service, other), PENDING in service.node(other).driver_info) == ([], False)


@pytest.mark.parametrize("page_nodes", [1, 500])
def test_a_bmc_of_this_host_is_shared_by_the_same_port_only(
    service: Service, monkeypatch: pytest.MonkeyPatch, page_nodes: int
) -> None:
    """They are tunnels."""
    monkeypatch.setattr(node_bmc, "_PAGE_NODES", page_nodes)
    nodes = [
        enrol(service, redfish_address=f"https://127.0.0.1:{port}", redfish_system_id=f"{number}")
        for number, port in enumerate((8001, 8001, 8002))
    ]
    assert set(put(service, nodes[0]).json["nodes"]) == set(nodes[:2])


def test_all_are_refused_if_one_of_them_is_being_inspected(service: Service) -> None:
    first, second = (enrol(service, redfish_system_id=str(number)) for number in (1, 2))
    service.wait(second)
    for ident in (first, second):
        answer = put(service, ident)
        assert (answer.status_code, "inspection" in fault(answer)) == (409, True)
    assert PENDING not in service.node(first).driver_info


def test_a_second_change_waits_for_the_first_one(service: Service) -> None:
    ident = enrol(service)
    put(service, ident)
    for password in (NEW, "Canary-third-1", None):
        assert put(service, ident, password).status_code == 409
    service.consume()
    assert state(service, ident) == State.UNCLEAR
    stored = service.node(ident).driver_info[PENDING]
    assert put(service, ident, "Canary-third-1").status_code == 409
    assert put(service, ident, None).status_code == 202
    assert queued(service, ident) == [(Event.SET_PASSWORD, {"probe": True})]
    assert service.node(ident).driver_info[PENDING] == stored


def test_there_must_be_something_to_resume(service: Service) -> None:
    ident = enrol(service)
    assert (put(service, ident, None).status_code, state(service, ident)) == (409, State.NONE)


def test_the_result_is_shown(service: Service) -> None:
    ident = enrol(service)
    for result in (State.CHANGED, State.UNCHANGED):
        record = msgspec.to_builtins(Record(result, 1_700_000_000.0))
        service.alter(ident, internal={RECORD: record}, last_error="the BMC refused")
        answer = service.bare_metal.get(f"/v1/nodes/{ident}/bmc/password").json
        assert (answer["state"], answer["changed_at"][:10]) == (result, "2023-11-14")
        assert answer["error"] == (None if result is State.CHANGED else "the BMC refused")


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "replace", "path": "/driver_info/redfish_password", "value": "another-Pass.1"},
        {"op": "remove", "path": f"/driver_info/{PENDING}"},
        {"op": "replace", "path": "/driver_info", "value": INFO | {"redfish_address": "https://192.0.2.66"}},
    ],
)
def test_nothing_that_decides_where_passwords_go_changes_meanwhile(service: Service, operation: dict[str, Any]) -> None:
    """The worker is about to store the new password with the BMC that the node has now."""
    ident = enrol(service)
    put(service, ident)
    before = service.node(ident).driver_info
    assert service.bare_metal.patch(f"/v1/nodes/{ident}", operation).status_code in (400, 409)
    assert service.node(ident).driver_info == before
    assert service.bare_metal.delete(f"/v1/nodes/{ident}").status_code == 409
    named = {"op": "add", "path": "/name", "value": "another-name"}
    assert service.bare_metal.patch(f"/v1/nodes/{ident}", named).status_code == 200


def test_an_unproven_password_is_removed_by_its_name_only(service: Service) -> None:
    ident = enrol(service)
    put(service, ident)
    service.consume()
    kept = service.node(ident).driver_info[PENDING]
    whole = {"op": "replace", "path": "/driver_info", "value": INFO}
    assert service.bare_metal.patch(f"/v1/nodes/{ident}", whole).status_code == 200
    assert service.node(ident).driver_info[PENDING] == kept
    moved = {"op": "replace", "path": "/driver_info", "value": INFO | {"redfish_address": "https://192.0.2.66"}}
    answer = service.bare_metal.patch(f"/v1/nodes/{ident}", moved)
    assert (answer.status_code, PENDING in fault(answer)) == (400, True)
    removed = {"op": "remove", "path": f"/driver_info/{PENDING}"}
    assert service.bare_metal.patch(f"/v1/nodes/{ident}", removed).status_code == 200
    assert PENDING not in service.node(ident).driver_info
    given = {"op": "add", "path": f"/driver_info/{PENDING}", "value": "given-Pass.1"}
    assert service.bare_metal.patch(f"/v1/nodes/{ident}", given).status_code == 400


@pytest.mark.parametrize(
    "info",
    [{"redfish_username": None}, {"redfish_password": "secret://file/rack1/bmc"}],
)
def test_a_node_without_an_account_of_ours_is_refused(service: Service, info: dict[str, Any]) -> None:
    ident = enrol(service)
    service.alter(ident, driver_info=INFO | info)
    answer = put(service, ident)
    assert answer.status_code in (400, 409)
    assert NEW not in answer.text
    assert queued(service, ident) == []


def test_a_reference_replaces_a_reference(service: Service) -> None:
    ident = enrol(service, redfish_password="secret://file/rack1/old")
    assert put(service, ident, "secret://file/rack1/new").status_code == 202
    assert service.node(ident).driver_info[PENDING] == "secret://file/rack1/new"


def test_a_driver_that_cannot_is_refused(sqlite_url: str) -> None:
    served = Service(sqlite_url)
    ident = served.enrol(driver_info=INFO)
    assert put(served, ident).status_code == 400


# Who may

_MEMBER = Identity(user="m", method="keystone", roles=frozenset({"member", "reader"}), project_id="p1")
_READER = Identity(user="r", method="keystone", roles=frozenset({"reader"}), project_id="p1")
_OTHER = Identity(user="o", method="keystone", roles=frozenset({"member", "reader"}), project_id="p2")
_INTRUDER = Identity(user="i", method="keystone", roles=frozenset({"admin", "member", "reader"}), project_id="p2")
_SYSTEM = Identity(user="s", method="keystone", roles=frozenset({"admin", "member", "reader"}), system_scope=True)


@pytest.fixture
def caller(sqlite_url: str) -> Callable[[str], As]:
    people = {"member": _MEMBER, "reader": _READER, "other": _OTHER, "intruder": _INTRUDER, "system": _SYSTEM}
    served = service_for(sqlite_url, people, drivers=DRIVERS)
    for number, owner in enumerate(("p1", "p1", "p2"), 1):
        address = "https://192.0.2.1" if number == 1 else "https://192.0.2.2"
        served.store.write(
            lambda tx, number=number, owner=owner, address=address: _add(tx, number, owner, address)  # type: ignore[misc]
        )
    return lambda name: As(served.bare_metal, name)


def _add(tx: Any, number: int, owner: str, address: str) -> None:
    uuid = f"11111111-1111-4111-8111-{number:012d}"
    node = examples.node(uuid=uuid, name=f"n{number}", driver="redfish", owner=owner)
    node.driver_info = INFO | {"redfish_address": address}
    tx.nodes.add(node)
    tx.addresses.set_bmc(uuid, [address.removeprefix("https://")])


@pytest.mark.parametrize(
    ("who", "node", "status"),
    [
        ("member", "n1", 202),
        ("reader", "n1", 403),
        ("member", "n2", 409),  # a node of another project has the same account
        ("system", "n2", 202),
    ],
)
def test_only_who_may_write_credentials_may_change_them(
    caller: Callable[[str], As], who: str, node: str, status: int
) -> None:
    answer = caller(who)("PUT", f"/v1/nodes/{node}/bmc/password", {"password": NEW})
    assert answer.status_code == status, answer.text
    assert "n3" not in answer.text
    if status != 202:
        assert caller("system")("GET", f"/v1/nodes/{node}/bmc/password").json["state"] == State.NONE


def test_only_members_of_the_whole_service_set_references(caller: Callable[[str], As]) -> None:
    body = {"password": "secret://file/rack1/new"}
    assert caller("member")("PUT", "/v1/nodes/n1/bmc/password", body).status_code == 403
    assert caller("system")("PUT", "/v1/nodes/n1/bmc/password", body).status_code == 202


def test_a_node_that_a_project_claims_to_share_a_bmc_learns_no_password(caller: Callable[[str], As]) -> None:
    """Its admin may enroll it with the address of any BMC; by another name, which may lead elsewhere tomorrow."""
    mine = {"redfish_address": "http://192.0.2.1", "redfish_username": "root", "redfish_password": "a-wrong-Guess.1"}
    mine |= SHARED
    enrolled = caller("intruder")("POST", "/v1/nodes", {"driver": "redfish", "driver_info": mine})
    assert enrolled.status_code == 201, enrolled.text
    answer = caller("system")("PUT", "/v1/nodes/n1/bmc/password", {"password": NEW})
    assert enrolled.json["uuid"] not in answer.json["nodes"], answer.text


def test_whether_a_guess_is_the_stored_password_of_others_is_told_a_few_times_only(caller: Callable[[str], As]) -> None:
    """Who names the account of a BMC of others in a node of their own would read it from the answer: 202 or 409."""
    answers = []
    for number in range(8):
        mine = INFO | SHARED | {"redfish_address": "https://192.0.2.1", "redfish_password": f"a-Guess.{number}"}
        enrolled = caller("intruder")("POST", "/v1/nodes", {"driver": "redfish", "driver_info": mine})
        assert enrolled.status_code == 201, enrolled.text
        path = f"/v1/nodes/{enrolled.json['uuid']}/bmc/password"
        answers.append(caller("intruder")("PUT", path, {"password": NEW}))
    statuses = [one.status_code for one in answers]
    assert statuses[:BURST_MISTYPED] == [202, *[409] * (BURST_MISTYPED - 1)]  # it waits for its own first change
    assert statuses[BURST_MISTYPED:] == [429] * (8 - BURST_MISTYPED)
    assert answers[-1].headers["Retry-After"].isdigit()
    assert caller("system")("PUT", "/v1/nodes/n1/bmc/password", {"password": NEW}).status_code == 202
