"""Who may see, set and change which field: the tables of the reference page are what happens over HTTP."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ferroscope import transition
from ferroscope.api.auth.policy import Policy
from ferroscope.api.baremetal import node_fields, node_filters, node_policies, nodes
from ferroscope.core.model import Chassis, Inspection, Node, Port, Portgroup
from ferroscope.db import Transaction
from ferroscope.runtime.system import SystemClock
from ferroscope_client.core.node import SETTABLE, TextForm
from ferroscope_client.core.states import Provision, State
from tests.api.callers import As, service_for
from tests.api.service import Service, callback_body
from tests.support import databases, examples
from tools.docs import field_policies
from tools.docs.field_policies import CREATORS, OTHERS, PROJECT, REDACTED, Resource
from tools.docs.policies import CALLERS, HIDDEN, LESSEE, LIMITED, LOGIN, NO, OWNER, YES

NODE = "1be26c0b-03f2-4d2e-ae87-c02d7f33c123"
PARENT = "5be26c0b-03f2-4d2e-ae87-c02d7f33c123"
PORT = "3be26c0b-03f2-4d2e-ae87-c02d7f33c123"
GROUP = "2be26c0b-03f2-4d2e-ae87-c02d7f33c123"
CHASSIS = "4be26c0b-03f2-4d2e-ae87-c02d7f33c123"
RULE = {"uuid": "6be26c0b-03f2-4d2e-ae87-c02d7f33c123", "actions": [{"op": "fail", "args": {"msg": "x"}}]}
IDENTITIES = {name: one for name, one in (CALLERS | CREATORS).items() if one is not None}
FIELDS = list(node_policies.guarded_fields())
POLICY = Policy(SystemClock())
# What a fresh node may not have alone, whoever asks: 400 or 409 for those whom the policy allows it.
NEVER_ALONE = {"protected", "protected_reason", "retired_reason"}
Fresh = Callable[[], None]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    served = service_for(databases.sqlite(tmp_path_factory.mktemp("fields")), IDENTITIES)
    served.store.write(lambda tx: tx.chassis.add(Chassis(uuid=CHASSIS, created_at=tx.now)))
    served.store.write(lambda tx: transition.add_node(tx, Node(uuid=PARENT, driver="fake-hardware", created_at=tx.now)))
    yield served
    served.close()


@pytest.fixture
def fresh(service: Service) -> Fresh:
    """Make the node anew, with a port and a port group, all of it with something in each redacted field."""

    def work(tx: Transaction) -> None:
        if tx.nodes.orphans().keys() & {NODE}:
            tx.nodes.remove(NODE)
        node = Node(
            uuid=NODE,
            driver="fake-hardware",
            owner=OWNER,
            created_at=tx.now,
            driver_info={"redfish_address": "https://192.0.2.9"},
            internal={"seen": "SECRET"},
            last_error="SECRET",
            hardware={"serial": "SECRET"},
            maintenance=True,
            attributes={"lessee": LESSEE, "deviations": [{"condition": "SECRET"}], "maintenance_reason": "lid open"},
        )
        tx.nodes.add(node)
        tx.portgroups.add(Portgroup(uuid=GROUP, node=NODE, created_at=tx.now))
        tx.ports.add([Port(uuid=PORT, node=NODE, address="52:54:00:aa:00:01", created_at=tx.now)])

    return lambda: service.store.write(work)


def sample(one: node_policies.Guarded) -> Any:
    """Return a value that is not the one that the field has."""
    field = SETTABLE[one.field]
    known = {"chassis_uuid": CHASSIS, "parent_node": PARENT, "driver": "sim", "labels": {"rack": "r1"}}
    if one.value:
        return one.value == "true"
    if one.field in known:
        return known[one.field]
    if one.field.endswith("_interface"):
        return "no-inspect" if one.field == "inspect_interface" else None
    if field.plain is bool:
        return True
    if field.plain is dict or field.type == dict[str, Any]:
        return {"tried": "1"}
    return str(uuid.uuid4()) if field.form is TextForm.UUID else f"tried-{uuid.uuid4().hex[:8]}"


def outcome(answer: Any, *, valid: bool = True) -> str:
    """Return the cell for a response; ``valid``: a call that is allowed succeeds."""
    assert answer.status_code < 500, answer.text
    if answer.status_code == 401:
        return LOGIN
    if answer.status_code == 403 and "The policy" in answer.text:
        return NO
    if answer.status_code == 404 or f"{NODE} does not exist" in answer.text or f"{NODE} could not" in answer.text:
        return HIDDEN
    assert not valid or answer.status_code < 300, answer.text
    return YES


def caller(service: Service, who: str) -> As:
    return As(service.bare_metal, "" if who == "anonymous" else who)


def test_each_field_is_shown_to_whom_the_page_says(service: Service, fresh: Fresh) -> None:
    fresh()
    for who in CALLERS:
        answer = caller(service, who)("GET", f"/v1/nodes/{NODE}")
        for field in node_fields.REDACTED:
            expected = field_policies.shown(POLICY, field, who)
            if answer.status_code != 200:
                assert outcome(answer) == expected, (field, who)
            elif field != "reservation":  # no node has one
                text = str(answer.json[field])
                assert ("edacted" in text) is (expected == REDACTED), (field, who)
                assert ("SECRET" in text or "192.0.2.9" in text) is (expected == YES), (field, who)


def test_each_field_is_changed_by_whom_the_page_says(service: Service, fresh: Fresh) -> None:
    for one, who in itertools.product(FIELDS, CALLERS):
        value = sample(one)
        fresh()
        operation = {"op": "add", "path": f"/{one.field}", "value": value}
        got = outcome(
            caller(service, who)("PATCH", f"/v1/nodes/{NODE}", [operation]), valid=one.field not in NEVER_ALONE
        )
        assert got == field_policies.changed(POLICY, one, who), (one, who)
        after = service.node(NODE)
        assert got == YES or after.version == 0, (one, who)
        # Together with a field that the caller may change, or removed, it needs the same.
        if got == NO:
            both = [{"op": "add", "path": "/description", "value": "x"}, operation]
            assert outcome(caller(service, who)("PATCH", f"/v1/nodes/{NODE}", both)) == NO, (one, who)


def test_each_field_is_set_on_a_new_node_by_whom_the_page_says(service: Service) -> None:
    for one, (who, identity) in itertools.product(FIELDS, CREATORS.items()):
        if one.value and node_policies.is_default(one.field, one.value == "true"):
            continue
        value = "no-bios" if one.field == "bios_interface" else sample(one)
        if one.field == "owner" and identity is not None and identity.project_id:
            value = PROJECT
        body = {"driver": "fake-hardware"} | {one.field: value}
        got = outcome(caller(service, who)("POST", "/v1/nodes", body), valid=one.field not in NEVER_ALONE)
        expected = field_policies.created(POLICY, one, who)
        if one.field.endswith("_interface") and value is None:  # what a new node has anyway
            expected = field_policies.created(POLICY, node_policies.Guarded("description", "", ""), who)
        assert got == (YES if expected == LIMITED else expected), (one, who)


@pytest.mark.parametrize("resource", OTHERS, ids=lambda resource: resource.name)
def test_fields_of_other_resources(service: Service, fresh: Fresh, resource: Resource) -> None:
    As(service.bare_metal, "system admin")("POST", "/v1/inspection_rules", RULE)
    ident = {"port": PORT, "portgroup": GROUP, "chassis": CHASSIS, "inspection_rule": RULE["uuid"]}[resource.name]
    values = {"local_link_connection": {}, "extra": {"a": 1}, "properties": {}, "mode": "802.3ad", "pxe_enabled": True}
    values |= {"node_uuid": NODE, "node_ident": NODE, "portgroup_uuid": GROUP, "actions": RULE["actions"]}
    values |= {"conditions": [], "priority": 1, "phase": "main", "sensitive": False}
    flags = {"is_smartnic", "available_for_dynamic_portgroup", "standalone_ports_supported"}
    for field in resource.fields:
        for who in CALLERS:
            fresh()
            value = field in flags or values.get(field, f"tried-{uuid.uuid4().hex[:8]}")
            value = examples.mac() if field == "address" else value
            operation = {"op": "add", "path": f"/{field}", "value": value}
            changed = caller(service, who)("PATCH", f"/v1/{resource.collection}/{ident}", [operation])
            assert outcome(changed) == field_policies.other(POLICY, resource, "update", who), (field, who)
            body: Any = {"actions": RULE["actions"]} if resource.name == "inspection_rule" else {}
            if resource.of_node and field != "node_ident":
                body["node_uuid"] = NODE
            if resource.name == "port":
                body["address"] = examples.mac()
            value = examples.mac() if field == "address" else value
            if field == "name":
                value = f"{value}-2"
            made = caller(service, who)("POST", f"/v1/{resource.collection}", body | {field: value})
            assert outcome(made) == field_policies.other(POLICY, resource, "create", who), (field, who)


def test_a_patch_is_not_a_second_way_to_end_maintenance(service: Service, fresh: Fresh) -> None:
    fresh()
    member = As(service.bare_metal, "lessee member")
    for operation in (
        {"op": "remove", "path": "/maintenance"},
        {"op": "replace", "path": "/maintenance", "value": "no"},
        {"op": "add", "path": "/maintenance", "value": None},
    ):
        answer = member("PATCH", f"/v1/nodes/{NODE}", [operation])
        assert (answer.status_code, "clear_maintenance" in answer.text) == (403, True)
    assert member("DELETE", f"/v1/nodes/{NODE}/maintenance").status_code == 403
    assert service.node(NODE).maintenance


def test_no_filter_and_no_order_says_what_is_redacted(service: Service, fresh: Fresh) -> None:
    fresh()
    deviates = f"/v1/nodes?owner={OWNER}&deviating="
    for who, seen in (("owner reader", True), ("system reader", True), ("lessee admin", False)):
        listed = {
            wanted: bool(caller(service, who)("GET", f"{deviates}{wanted}").json["nodes"])
            for wanted in ("true", "false")
        }
        assert listed == {"true": seen, "false": False}
        for key in set(nodes.SORT_FIELDS) & set(node_fields.REDACTED):
            listed = caller(service, who)("GET", f"/v1/nodes?owner={OWNER}&sort_key={key}").json["nodes"]
            assert bool(listed) is seen, key
    # Each filter names the field that it reads, so that a new one about a redacted field is an oracle for nobody.
    assert set(node_filters.READ_BY.values()) <= {field.name for field in node_fields.FIELDS}


def test_that_nothing_deviates_is_not_said_either(service: Service, fresh: Fresh) -> None:
    fresh()
    service.alter(NODE, hardware={}, attributes={"lessee": LESSEE})
    shown = As(service.bare_metal, "lessee admin")("GET", f"/v1/nodes/{NODE}").json
    assert ["content"] == list(shown["hardware"]) == list(shown["deviations"][0])


def test_data_of_the_caller_s_own_sets_what_only_the_owner_may_set(service: Service, fresh: Fresh) -> None:
    fresh()
    past = Inspection(uuid=str(uuid.uuid4()), node=NODE, state=State.FINISHED, started_at=1.0, finished_at=2.0)
    service.store.write(lambda tx: tx.inspections.add(past))
    service.alter(NODE, inspection=past.uuid, state=State.FINISHED, provision_state=Provision.MANAGEABLE)
    for who, expected in (("lessee admin", NO), ("owner member", YES)):
        body = callback_body("52:54:00:aa:00:01")
        answer = As(service.bare_metal, who)("POST", f"/v1/nodes/{NODE}/inventory/reapply", body)
        assert outcome(answer) == expected


def test_a_machine_is_put_into_the_inbox_by_the_same_policies(service: Service) -> None:
    body = {"driver": "fake-hardware", "driver_info": {}, "labels": {"a": "b"}}
    for who, expected in (("system admin", YES), ("system service", YES), ("owner admin", NO)):
        assert outcome(As(service.bare_metal, who)("POST", "/v1/inbox", body)) == expected
