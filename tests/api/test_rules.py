"""Inspection rules and introspection rules: two views of one set, checked before anything is stored."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.service import Client, Service, fault, message
from tests.support import kayobe
from tests.support.examples import uuid

RULE: dict[str, Any] = {
    "description": "big machines",
    "priority": 10,
    "conditions": [{"op": "ge", "args": {"values": ["{inventory[memory][physical_mb]}", 1]}}],
    "actions": [{"op": "set-attribute", "args": {"path": "extra/big", "value": "{inventory[memory][physical_mb]}"}}],
}
OLD: dict[str, Any] = {
    "description": "old",
    "scope": "rack 1",
    "conditions": [{"op": "eq", "field": "node://driver", "value": "fake", "invert": True, "multiple": "all"}],
    "actions": [{"action": "set-capability", "name": "a", "value": "{data[inventory][cpu][count]}"}],
}
RULES = "/v1/inspection_rules"


def make(client: Client, **fields: Any) -> dict[str, Any]:
    answer = client.post(RULES, RULE | fields)
    assert answer.status_code == 201, answer.text
    body: dict[str, Any] = answer.json
    return body


def make_old(client: Client, **fields: Any) -> dict[str, Any]:
    answer = client.post("/v1/rules", OLD | fields)
    assert answer.status_code == 201, answer.text
    body: dict[str, Any] = answer.json
    return body


def test_a_rule_is_created_shown_and_deleted(service: Service) -> None:
    client, ident = service.bare_metal, uuid()
    answer = client.post(RULES, RULE | {"uuid": ident, "scope": "rack 1"})
    assert answer.status_code == 201
    assert answer.headers["Location"].endswith(f"{RULES}/{ident}")
    rule = answer.json
    assert {name: rule[name] for name in RULE} == RULE
    assert (rule["uuid"], rule["phase"], rule["sensitive"], rule["scope"]) == (ident, "main", False, "rack 1")
    assert rule["links"][0]["href"].endswith(f"{RULES}/{ident}")
    assert client.get(f"{RULES}/{ident}").json == rule
    assert client.post(RULES, RULE | {"uuid": ident}).status_code == 409
    assert client.delete(f"{RULES}/{ident}").status_code == 204
    assert client.get(f"{RULES}/{ident}").status_code == 404
    assert client.delete(f"{RULES}/{ident}").status_code == 404


def test_values_that_clients_send_as_texts_are_understood(bare_metal: Client) -> None:
    rule = make(bare_metal, priority="42", sensitive="false", conditions=None)
    assert (rule["priority"], rule["sensitive"], rule["conditions"]) == (42, False, [])


def test_published_rules_are_accepted(bare_metal: Client) -> None:
    for rule in kayobe.RULES:
        answer = bare_metal.post(RULES, rule)
        assert answer.status_code == 201, answer.text
        if not answer.json["sensitive"]:
            shown = bare_metal.get(f"{RULES}/{answer.json['uuid']}").json
            assert [one["args"] for one in shown["conditions"]] == [one["args"] for one in rule["conditions"]]


def test_a_list_shows_the_short_form_unless_more_is_asked_for(bare_metal: Client) -> None:
    make(bare_metal)
    (short,) = bare_metal.get(RULES).json["inspection_rules"]
    assert set(short) == {"uuid", "priority", "phase", "description", "links"}
    (detailed,) = bare_metal.get(f"{RULES}?detail=true").json["inspection_rules"]
    assert detailed["actions"] == RULE["actions"]
    (some,) = bare_metal.get(f"{RULES}?fields=uuid,actions").json["inspection_rules"]
    assert set(some) == {"uuid", "actions", "links"}
    assert set(bare_metal.get(f"{RULES}/{short['uuid']}?fields=priority").json) == {"priority", "links"}


def test_a_list_is_sorted_filtered_and_paged(bare_metal: Client) -> None:
    uuids = [make(bare_metal, priority=priority)["uuid"] for priority in (1, 3, 2)]
    page = bare_metal.get(f"{RULES}?sort_key=priority&sort_dir=desc&limit=2").json
    assert [rule["uuid"] for rule in page["inspection_rules"]] == [uuids[1], uuids[2]]
    rest = bare_metal.get(page["next"].partition(":6385")[2] or page["next"].split("/", 3)[3].join(["/", ""])).json
    assert [rule["uuid"] for rule in rest["inspection_rules"]] == [uuids[0]]
    assert "next" not in rest
    assert len(bare_metal.get(f"{RULES}?phase=main").json["inspection_rules"]) == 3
    assert bare_metal.get(f"{RULES}?phase=late").json["inspection_rules"] == []


def test_a_list_that_cannot_be_given_is_refused(bare_metal: Client) -> None:
    for query in ["sort_key=actions", "fields=colour", "marker=x", "fields=uuid&detail=1"]:
        assert bare_metal.get(f"{RULES}?{query}").status_code == 400, query


def test_a_rule_is_patched(bare_metal: Client) -> None:
    rule = make(bare_metal)
    path = f"{RULES}/{rule['uuid']}"
    changed = bare_metal.patch(
        path,
        {"op": "replace", "path": "/priority", "value": 7},
        {"op": "remove", "path": "/description"},
        {"op": "add", "path": "/actions/-", "value": {"op": "add-trait", "args": {"name": "CUSTOM_X"}}},
        {"op": "remove", "path": "/condition/0"},
    )
    assert changed.status_code == 200, changed.text
    body = changed.json
    assert (body["priority"], body["description"], body["conditions"]) == (7, None, [])
    assert len(body["actions"]) == 2
    assert body["updated_at"] is not None
    assert bare_metal.get(path).json == body


@pytest.mark.parametrize(
    ("operation", "problem"),
    [
        ({"op": "replace", "path": "/actions", "value": []}, "actions"),
        ({"op": "replace", "path": "/phase", "value": "late"}, "phase"),
        ({"op": "replace", "path": "/uuid", "value": "x"}, "/uuid"),
    ],
)
def test_a_patch_to_an_invalid_rule_changes_nothing(bare_metal: Client, operation: Any, problem: str) -> None:
    rule = make(bare_metal)
    answer = bare_metal.patch(f"{RULES}/{rule['uuid']}", operation)
    assert answer.status_code == 400
    assert problem in fault(answer)
    assert bare_metal.get(f"{RULES}/{rule['uuid']}").json == rule


def test_an_invalid_rule_is_refused_by_the_name_of_the_field(bare_metal: Client) -> None:
    for fields, problem in [
        ({"actions": []}, "actions: "),
        ({"actions": [{"op": "fail"}]}, "actions[0]"),
        ({"conditions": [{"op": "matches", "args": {"value": "x", "regex": "("}}]}, "conditions[0]: args.regex: "),
        ({"description": "x" * 256}, "$.description"),
        ({"colour": "red"}, "`colour`"),
        ({"uuid": "x"}, "uuid: 'x'"),
    ]:
        answer = bare_metal.post(RULES, RULE | fields)
        assert answer.status_code == 400, fields
        assert problem in fault(answer), fields
        assert bare_metal.get(RULES).json["inspection_rules"] == [], fields


def test_a_sensitive_rule_hides_what_it_does_and_stays_sensitive(bare_metal: Client) -> None:
    rule = make(bare_metal, sensitive=True)
    assert (rule["conditions"], rule["actions"]) == (None, None)
    path = f"{RULES}/{rule['uuid']}"
    assert bare_metal.get(path).json["actions"] is None
    assert bare_metal.get(f"{RULES}?detail=true").json["inspection_rules"][0]["conditions"] is None
    answer = bare_metal.patch(path, {"op": "replace", "path": "/sensitive", "value": False})
    assert answer.status_code == 400
    assert bare_metal.patch(path, {"op": "replace", "path": "/priority", "value": 3}).json["priority"] == 3


def test_rules_exist_from_their_microversion_on(service: Service) -> None:
    assert service.client("1.95").get(RULES).status_code == 404
    assert service.client("1.95").post(RULES, RULE).status_code == 404


def test_an_introspection_rule_is_created_shown_and_deleted(service: Service) -> None:
    client = service.introspection
    rule = make_old(client)
    assert {name: rule[name] for name in OLD} == OLD
    assert rule["links"] == [{"href": rule["links"][0]["href"], "rel": "self"}]
    assert client.get(f"/v1/rules/{rule['uuid']}").json == rule
    (short,) = client.get("/v1/rules").json["rules"]
    assert set(short) == {"uuid", "description", "scope", "links"}
    assert client.post("/v1/rules", OLD | {"uuid": rule["uuid"]}).status_code == 409
    assert client.delete(f"/v1/rules/{rule['uuid']}").status_code == 204
    assert client.get("/v1/rules").json == {"rules": []}


def test_the_status_of_a_created_rule_is_that_of_the_version(service: Service) -> None:
    header = {"X-OpenStack-Ironic-Inspector-API-Version": "1.5"}
    assert service.introspection.post("/v1/rules", OLD, headers=header).status_code == 200


def test_a_rule_can_be_put_any_number_of_times(introspection: Client, bare_metal: Client) -> None:
    ident = uuid()
    first = introspection.put(f"/v1/rules/{ident}", OLD)
    assert (first.status_code, first.json["uuid"]) == (201, ident)
    second = introspection.put(f"/v1/rules/{ident}", OLD | {"uuid": ident, "description": "new"})
    assert (second.status_code, second.json["description"]) == (200, "new")
    assert introspection.put(f"/v1/rules/{ident}", OLD | {"uuid": uuid()}).status_code == 400
    theirs = make(bare_metal)["uuid"]
    assert introspection.put(f"/v1/rules/{theirs}", OLD).status_code == 409


def test_each_api_deletes_its_own_and_the_newer_one_sees_all(introspection: Client, bare_metal: Client) -> None:
    mine, old = make(bare_metal), make_old(introspection)
    assert introspection.get(f"/v1/rules/{mine['uuid']}").status_code == 404
    assert introspection.delete(f"/v1/rules/{mine['uuid']}").status_code == 404
    seen = bare_metal.get(f"{RULES}/{old['uuid']}").json
    assert seen["dialect"] == "introspection"
    assert seen["conditions"] == [{"op": "!eq", "args": {"field": "node://driver", "value": "fake"}, "multiple": "all"}]
    assert introspection.delete("/v1/rules").status_code == 204
    assert [rule["uuid"] for rule in bare_metal.get(RULES).json["inspection_rules"]] == [mine["uuid"]]
    make_old(introspection)
    assert bare_metal.delete(RULES).status_code == 204
    assert bare_metal.get(RULES).json["inspection_rules"] == []


def test_an_invalid_introspection_rule_is_refused(introspection: Client) -> None:
    for fields, problem in [
        ({"actions": []}, "action"),
        ({"actions": [{"action": "set-attribute", "path": "/extra/x"}]}, "actions[0]: value"),
        ({"scope": "x" * 256}, "$.scope"),
        ({"uuid": "x"}, "uuid: 'x'"),
    ]:
        answer = introspection.post("/v1/rules", OLD | fields)
        assert answer.status_code == 400, fields
        assert problem in message(answer), fields
        assert introspection.get("/v1/rules").json == {"rules": []}, fields


def test_a_dry_run_shows_what_would_change_and_stores_nothing(service: Service) -> None:
    client, node = service.bare_metal, service.enrol(name="one")
    service.inspect(node)
    rule = make(client)
    found = client.post(f"{RULES}/explain", {"node": "one", "rule": rule["uuid"]})
    assert found.status_code == 200, found.text
    (explained,) = found.json["rules"]
    assert explained["result"] == "applied"
    (check,) = explained["conditions"][0]["checks"]
    (change,) = found.json["node"]
    assert (change["path"], change["after"]) == ("/extra/big", check["args"]["values"][0])
    assert client.get("/v1/nodes/one").json["extra"] == {}


def test_a_dry_run_takes_all_rules_or_a_draft(service: Service) -> None:
    client, node = service.bare_metal, service.enrol(name="one")
    service.inspect(node)
    make(client)
    make_old(service.introspection, scope=None, conditions=[])
    found = client.post(f"{RULES}/explain", {"node": "one"}).json
    assert [rule["dialect"] for rule in found["rules"]] == ["bare-metal", "introspection"]
    draft = {"actions": [{"op": "fail", "args": {"msg": "never"}}]}
    refused = client.post(f"{RULES}/explain", {"node": "one", "draft": draft}).json
    assert (refused["failed"], refused["rules"][0]["result"]) == (True, "failed")
    assert "never" in refused["rules"][0]["error"]
    assert refused["node"] == []


def test_a_dry_run_knows_whose_a_name_is(service: Service) -> None:
    client, node = service.bare_metal, service.enrol(name="one")
    other = service.enrol(name="two")
    service.inspect(node)
    for name, failed in (("two", True), ("one", False), ("three", False)):
        draft = {"actions": [{"op": "set-attribute", "args": {"path": "name", "value": name}}]}
        found = client.post(f"{RULES}/explain", {"node": "one", "draft": draft}).json
        assert found["failed"] is failed, found
        assert (other in (found["rules"][0]["error"] or "")) is failed


def test_a_dry_run_needs_data_and_something_to_run(service: Service) -> None:
    client, node = service.bare_metal, service.enrol(name="one")
    explain = f"{RULES}/explain"
    assert client.post(explain, {"node": "one"}).status_code == 404
    assert client.post(explain, {"node": "two"}).status_code == 404
    service.inspect(node)
    assert client.post(explain, {"node": "one", "rule": uuid()}).status_code == 404
    assert client.post(explain, {"node": "one", "draft": {"actions": []}}).status_code == 400
    both = {"node": "one", "rule": uuid(), "draft": {"actions": RULE["actions"]}}
    assert client.post(explain, both).status_code == 400


SECRET_ACTIONS: list[dict[str, Any]] = [
    {"op": "set-attribute", "args": {"path": "/driver_info/redfish_password", "value": "hunter2"}},
    {"op": "set-attribute", "args": {"path": "/extra/asked", "value": "yes"}},
]
SECRET_CALL: dict[str, Any] = {
    "op": "api-call",
    "args": {"url": "https://host/p?token=hunter2", "headers": {"Authorization": "Bearer hunter2"}},
}


def stored_actions(service: Service, ident: str) -> list[dict[str, Any]]:
    return service.store.read(lambda tx: tx.rules.get(ident)).actions


def test_no_reader_of_a_rule_sees_its_secrets(service: Service) -> None:
    client, node = service.bare_metal, service.enrol(name="one")
    service.inspect(node)
    rule = make(client, actions=[*SECRET_ACTIONS, SECRET_CALL])
    old = make_old(
        service.introspection, scope=None, actions=[{"action": "set-attribute", **SECRET_ACTIONS[0]["args"]}]
    )
    answers = (
        client.get(RULES + "?detail=true"),
        client.get(f"{RULES}/{rule['uuid']}"),
        client.get(f"{RULES}/{old['uuid']}"),
        service.introspection.get(f"/v1/rules/{old['uuid']}"),
        client.post(f"{RULES}/explain", {"node": "one"}),
        client.patch(f"{RULES}/{rule['uuid']}", {"op": "replace", "path": "/priority", "value": 3}),
    )
    assert [answer.status_code for answer in answers] == [200] * len(answers)
    assert all("hunter2" not in answer.text for answer in answers)
    assert "hunter2" not in f"{rule}{old}"
    assert stored_actions(service, rule["uuid"]) == [*SECRET_ACTIONS, SECRET_CALL]


def test_a_rule_is_written_back_as_it_is_shown(service: Service) -> None:
    client = service.bare_metal
    rule = make(client, actions=[*SECRET_ACTIONS, SECRET_CALL])
    changed = [rule["actions"][2], SECRET_ACTIONS[1] | {"args": {"path": "/extra/asked", "value": "no"}}]
    answer = client.patch(f"{RULES}/{rule['uuid']}", {"op": "replace", "path": "/actions", "value": changed})
    assert answer.status_code == 200, answer.text
    assert stored_actions(service, rule["uuid"]) == [SECRET_CALL, changed[1]]
    old = make_old(service.introspection, actions=[{"action": "set-attribute", **SECRET_ACTIONS[0]["args"]}])
    again = service.introspection.put(f"/v1/rules/{old['uuid']}", old)
    assert again.status_code == 200, again.text
    assert stored_actions(service, old["uuid"]) == [SECRET_ACTIONS[0]]


def test_nobody_stores_the_mask_of_a_secret_in_a_rule(service: Service) -> None:
    client = service.bare_metal
    shown = make(client, actions=SECRET_ACTIONS)["actions"]
    assert client.post(RULES, RULE | {"actions": shown}).status_code == 400
    old = OLD | {"actions": [{"action": "set-attribute", "path": "/driver_info/ipmi_password", "value": "******"}]}
    assert service.introspection.post("/v1/rules", old).status_code == 400
    assert service.introspection.put(f"/v1/rules/{uuid()}", old).status_code == 400


def test_a_draft_has_the_secrets_of_the_rule_that_it_changes(service: Service) -> None:
    client, node = service.bare_metal, service.enrol(name="one")
    service.inspect(node)
    rule = make(client, actions=SECRET_ACTIONS)
    draft = {"uuid": rule["uuid"], "actions": [rule["actions"][0]]}
    found = client.post(f"{RULES}/explain", {"node": "one", "draft": draft})
    assert found.status_code == 200, found.text
    assert "hunter2" not in found.text
    assert found.json["node"] == [{"path": "/driver_info/redfish_password", "after": "******"}]
    moved = {"op": "set-attribute", "args": {"path": "/extra/x", "value": "******"}}
    refused = client.post(f"{RULES}/explain", {"node": "one", "draft": draft | {"actions": [moved]}})
    assert refused.status_code == 400


def test_a_rule_has_only_so_many_values(service: Service) -> None:
    """900 KB of numbers took 0.8 s of processor time, and were compiled again by each process."""
    values = [{"op": "set-attribute", "args": {"path": "/extra/x", "value": [1e308] * 10_001}}]
    answer = service.bare_metal.post(RULES, RULE | {"actions": values})
    assert (answer.status_code, "more than 10,000 values" in fault(answer)) == (400, True)
    make(service.bare_metal, actions=[{"op": "set-attribute", "args": {"path": "/extra/x", "value": [1] * 9_000}}])
