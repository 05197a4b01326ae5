"""The pages of the inspection rules: list, edit with errors at the fields, dry run, last matches."""

from __future__ import annotations

import html
import json
import re
from typing import Any

import pytest

from ferroscope.contracts.store import Query
from ferroscope.contrib.ui import rules
from ferroscope.core.model import RuleDialect
from tests.api.browsing import Browser, Elements, add, call_back, text_of
from tests.api.service import Service
from tests.support import examples

RULE = {
    "description": "acme",
    "priority": "7",
    "scope": "",
    "conditions": '- {op: eq, args: ["{inventory[system_vendor][manufacturer]}", ACME]}',
    "actions": json.dumps([{"op": "set-attribute", "args": {"path": "/extra/vendor", "value": "acme"}}]),
}


def stored(service: Service) -> list[Any]:
    return list(service.store.read(lambda tx: tx.rules.list(Query())))


def inspected(service: Service, name: str, vendor: str) -> str:
    """Enroll a node that has the data of an inspection."""
    uuid = add(service, name)
    machine = {"manufacturer": vendor, "product_name": "x", "serial_number": name}
    call_back(service, uuid, examples.mac(), system_vendor=machine)
    service.finish(uuid)
    service.learn(uuid, {"system_vendor": {"manufacturer": vendor, "serial_number": name}})
    return uuid


def test_a_rule_is_created_shown_changed_and_deleted(service: Service, root: Browser) -> None:
    assert "No rules" in text_of(root.get("/ui/rules"))
    made = root.post("/ui/rules/new", action="save", **RULE)
    assert made.status_code == 303, text_of(made)
    (rule,) = stored(service)
    assert (rule.description, rule.priority, rule.scope) == ("acme", 7, None)
    assert rule.conditions == [{"op": "eq", "args": ["{inventory[system_vendor][manufacturer]}", "ACME"]}]
    assert "The rule is saved" in text_of(root.get(made.headers["Location"]))
    page = root.get(f"/ui/rules/{rule.uuid}")
    areas = re.findall(r"<textarea[^>]*>(.*?)</textarea>", page.text, re.DOTALL)
    assert json.loads(html.unescape(areas[0])) == rule.conditions
    listed = text_of(root.get("/ui/rules"))
    assert "acme" in listed
    assert "set-attribute" in listed
    changed = RULE | {"priority": "9", "description": "ACME's", "conditions": ""}
    assert root.post(f"/ui/rules/{rule.uuid}", action="save", **changed).status_code == 303
    (rule,) = stored(service)
    assert (rule.description, rule.priority, rule.conditions) == ("ACME's", 9, [])
    assert "Delete this rule?" in text_of(root.post(f"/ui/rules/{rule.uuid}", action="delete"))
    assert len(stored(service)) == 1
    assert root.post(f"/ui/rules/{rule.uuid}", action="delete", confirm="yes").status_code == 303
    assert stored(service) == []
    assert root.get(f"/ui/rules/{rule.uuid}").status_code == 404


def test_who_saves_a_rule_learns_that_somebody_else_has_changed_it_and_loses_nothing(
    service: Service, root: Browser
) -> None:
    def version(text: str) -> str:
        found = re.search(r'name="was" value="([^"]*)"', text)
        assert found is not None
        return html.unescape(found[1])

    root.post("/ui/rules/new", action="save", **RULE)
    path = f"/ui/rules/{stored(service)[0].uuid}"
    was = version(root.get(path).text)
    assert root.post(path, action="save", was=was, **RULE | {"priority": "9"}).status_code == 303
    refused = root.post(path, action="save", was=was, **RULE | {"description": "mine"})
    assert (refused.status_code, "Another user changed this rule" in text_of(refused)) == (400, True)
    assert 'value="mine"' in refused.text
    assert (stored(service)[0].priority, stored(service)[0].description) == (9, "acme")
    again = root.post(path, action="save", was=version(refused.text), **RULE | {"description": "mine"})
    assert again.status_code == 303
    assert stored(service)[0].description == "mine"


def test_what_is_wrong_is_said_at_its_field_and_nothing_is_lost(service: Service, root: Browser) -> None:
    for given, field, expected in [
        ({"conditions": "- {op: nonsense, args: []}"}, "conditions", "conditions[0]"),
        ({"conditions": "[[["}, "conditions", "invalid YAML"),
        ({"conditions": "- &a {op: eq, args: [1, 1]}\n- *a"}, "conditions", "aliases"),
        ({"actions": "- {op: set-attribute, args: {path: /uuid, value: x}}"}, "actions", "actions[0]"),
        ({"priority": "many"}, "priority", "many"),
        ({"description": "x" * 300}, "description", "255"),
    ]:
        answer = root.post("/ui/rules/new", action="save", **RULE | given)
        assert answer.status_code == 400, given
        (errors,) = re.findall(r'<div class="alert" role="alert" id="(\w+)-errors">(.*?)</div>', answer.text, re.DOTALL)
        assert errors[0] == field, given
        assert expected in html.unescape(errors[1]), given
        for name, value in (RULE | given).items():
            assert html.escape(value).replace("&quot;", "&#34;").replace("&#x27;", "&#39;") in answer.text, (
                given,
                name,
            )
        assert stored(service) == [], given


def test_a_draft_is_tried_on_stored_machines_and_nothing_is_stored(service: Service, root: Browser) -> None:
    ours, other = inspected(service, "ours", "ACME"), inspected(service, "other", "Dull")
    service.store.write(lambda tx: tx.nodes.add(examples.node(name="bare")))
    before = [service.node(ours), service.node(other)]
    answer = root.post("/ui/rules/new", action="try", **RULE)
    shown = text_of(answer)
    assert answer.status_code == 200
    assert "Tried on 3 machines 1 would apply, 1 not applicable, 1 without data" in shown
    assert 'node /extra/vendor: →becomes "acme"' in shown
    assert ours in answer.text
    assert other not in answer.text
    assert [service.node(ours), service.node(other)] == before
    assert stored(service) == []
    narrowed = text_of(root.post("/ui/rules/new", action="try", q="serial == other", **RULE))
    assert "Tried on 1 machine 1 not applicable" in narrowed
    assert root.post("/ui/rules/new", action="try", q="serial ==", **RULE).status_code == 400
    failing = RULE | {"actions": '[{"op": "fail", "args": {"msg": "not ours"}}]'}
    assert "not ours" in text_of(root.post("/ui/rules/new", action="try", **failing))


def test_a_dry_run_ends_in_time(service: Service, root: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one", "two", "three"):
        inspected(service, name, "ACME")
    monkeypatch.setattr(rules, "_STEP_SECONDS", 0.0)
    shown = text_of(root.post("/ui/rules/new", action="try", **RULE))
    assert "Tried on machines 1 to 1 of 3" in shown
    following = text_of(root.post("/ui/rules/new", action="try:1", **RULE))
    assert "Tried on machines 2 to 2 of 3" in following
    monkeypatch.setattr(rules, "_STEP_SECONDS", 60.0)
    last = root.post("/ui/rules/new", action="try:1", **RULE)
    assert "Tried on machines 2 to 3 of 3" in text_of(last)
    assert ("Try the next machines" in following, "Try the next machines" in last.text) == (True, False)


def test_the_last_matches_are_those_of_the_newest_inspections(service: Service, root: Browser) -> None:
    root.post("/ui/rules/new", action="save", **RULE)
    (rule,) = stored(service)
    nodes = {name: inspected(service, name, "ACME") for name in ("matched", "unmatched")}
    for name, uuid in nodes.items():
        applied = [rule.uuid] if name == "matched" else []
        entry = examples.entry(
            service.node(uuid), step="rules", inspection=service.node(uuid).inspection, detail={"applied": applied}
        )
        service.store.write(lambda tx, entry=entry: tx.journal.append([entry]))
    page = root.get(f"/ui/rules/{rule.uuid}")
    assert "1 of the 2 newest inspections" in text_of(page)
    assert nodes["matched"] in page.text
    assert nodes["unmatched"] not in page.text


def test_a_sensitive_rule_stays_hidden_and_can_be_changed(service: Service, root: Browser) -> None:
    assert root.post("/ui/rules/new", action="save", sensitive="yes", **RULE).status_code == 303
    (rule,) = stored(service)
    page = root.get(f"/ui/rules/{rule.uuid}")
    assert "ACME" not in page.text
    given = {"description": "secret", "priority": "1", "sensitive": "yes"}
    assert root.post(f"/ui/rules/{rule.uuid}", action="save", **given).status_code == 303
    (changed,) = stored(service)
    assert (changed.description, changed.conditions, changed.sensitive) == ("secret", rule.conditions, True)
    inspected(service, "ours", "ACME")
    assert "1 would apply" in text_of(root.post(f"/ui/rules/{rule.uuid}", action="try", **given))


def test_a_rule_of_the_other_api_keeps_its_language(service: Service, root: Browser) -> None:
    body = {
        "description": "old",
        "conditions": [{"op": "eq", "field": "data://inventory.system_vendor.manufacturer", "value": "ACME"}],
        "actions": [{"action": "set-attribute", "path": "/extra/old", "value": "yes"}],
    }
    assert service.introspection.post("/v1/rules", body, headers={"X-Auth-Token": "root"}).status_code == 201
    (rule,) = stored(service)
    areas = [html.unescape(text) for text in re.findall(
        r"<textarea[^>]*>(.*?)</textarea>", root.get(f"/ui/rules/{rule.uuid}").text, re.DOTALL)]  # fmt: skip
    given = {"description": "older", "priority": "0", "conditions": areas[0], "actions": areas[1]}
    assert root.post(f"/ui/rules/{rule.uuid}", action="save", **given).status_code == 303
    (changed,) = stored(service)
    assert (changed.description, changed.dialect) == ("older", RuleDialect.INTROSPECTION)
    assert (changed.conditions, changed.actions) == (rule.conditions, rule.actions)


def test_who_may_only_read_rules_has_no_buttons_and_is_refused(service: Service, root: Browser) -> None:
    root.post("/ui/rules/new", action="save", **RULE)
    (rule,) = stored(service)
    reader = Browser(service).log_in("reader")
    assert "acme" in reader.get("/ui/rules").text
    page = reader.get(f"/ui/rules/{rule.uuid}")
    assert not [tag for tag in Elements(page.text).tags if tag[0] == "button" and tag[1].get("value")]
    for path in ("/ui/rules/new", f"/ui/rules/{rule.uuid}"):
        for action in ("save", "try"):
            changed = RULE | {"description": "changed"}
            assert reader.post(path, action=action, **changed).status_code == 403, (path, action)
    assert reader.post(f"/ui/rules/{rule.uuid}", action="delete", confirm="yes").status_code == 403
    assert [one.description for one in stored(service)] == ["acme"]
    project = Browser(service).log_in("a-member")
    assert project.get("/ui/rules").status_code == 403
    assert "/ui/rules" not in project.get("/ui").text
