"""Every action: what it changes, with which types, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from ferroscope.api.errors import BadRequestError
from ferroscope.api.http import decoding
from ferroscope.core.model import Document
from ferroscope.rules.data import InvalidRuleError, RuleFailedError
from ferroscope_client.core.reasons import Reason
from tests.fast.rules.running import MAC, Site, old_rule, rule
from tests.support.rows import each


def act(op: str, args: Any, site: Site | None = None, **more: Any) -> Site:
    site = site or Site()
    site.run(rule({"op": op, "args": args, **more}))
    return site


def old_act(op: str, site: Site | None = None, **args: Any) -> Site:
    site = site or Site()
    site.run(old_rule({"op": op, "args": args}))
    return site


@each("path", ["/properties/a/b", "properties/a/b", "properties.a.b"])
def test_an_attribute_is_set_at_a_path_with_the_type_of_its_value(path: str) -> None:
    site = act("set-attribute", {"path": path, "value": "{inventory[cpu][count]}"}, Site(properties={"a": {"c": 1}}))
    assert site.node.properties == {"a": {"b": 8, "c": 1}}


@each(
    ("path", "value", "field"),
    [
        ("resource_class", "baremetal", "resource_class"),
        ("/name", "node-{inventory[cpu][count]}", "name"),
        ("maintenance", "True", "maintenance"),
        ("conductor_group", "rack1", "conductor_group"),
        ("extra", {"a": [1]}, "extra"),
    ],
)
def test_whole_fields_are_set(path: str, value: Any, field: str) -> None:
    expected = {"node-{inventory[cpu][count]}": "node-8", "True": True}.get(str(value), value)
    assert getattr(act("set-attribute", {"path": path, "value": value}).node, field) == expected


@each(("word", "meant"), [(" Yes", True), ("on", True), ("1", True), ("off", False), ("F", False)])
def test_a_flag_is_set_by_any_word_for_it(word: str, meant: bool) -> None:
    assert act("set-attribute", {"path": "maintenance", "value": word}).node.maintenance is meant


def test_labels_are_set_and_removed_one_by_one() -> None:
    site = act("set-attribute", {"path": "/labels/cores", "value": "c{inventory[cpu][count]}"}, Site(labels={"a": ""}))
    assert site.node.labels == {"a": "", "cores": "c8"}
    assert act("del-attribute", {"path": "labels/a"}, site).node.labels == {"cores": "c8"}


def test_a_label_that_cannot_be_is_refused_and_leaves_nothing_behind() -> None:
    site = Site(labels={"a": ""})
    with pytest.raises(RuleFailedError):
        act("set-attribute", {"path": "/labels/model", "value": "PowerEdge R740"}, site)
    assert site.node.labels == {"a": ""}


def test_fields_that_nothing_interprets_are_set_too() -> None:
    site = act("set-attribute", {"path": "description", "value": "found by a rule"})
    assert site.node.attributes == {"description": "found by a rule"}
    assert act("del-attribute", {"path": "description"}, site).node.attributes == {}


@each(
    ("path", "value"),
    [("name", "not a name!"), ("maintenance", "maybe"), ("properties", []), ("resource_class", "x" * 81), ("owner", 3)],
)
def test_a_value_of_the_wrong_kind_fails_the_rule(path: str, value: Any) -> None:
    with pytest.raises(RuleFailedError, match=f"{path} "):
        act("set-attribute", {"path": path, "value": value})


@each("name", ["", "a b", "x" * 256, "states", "detail", "6f8b1a52-5a5c-4f1e-9d0e-5b7a3c0e9f11", "4C4C4544" * 4])
def test_a_name_that_the_api_refuses_fails_the_rule(name: str) -> None:
    with pytest.raises(BadRequestError):
        decoding.name("name", name)
    with pytest.raises(RuleFailedError, match="name must be 1 to 255"):
        act("set-attribute", {"path": "name", "value": name})
    if len(name) < 256:  # a port may have any text, as in Ironic
        assert act("set-port-attribute", {"port_id": "p1", "path": "name", "value": name}).port.name == name


@each("name", ["a", "eno1", "rack-1.row_2~", "States", "6f8b1a52"])
def test_a_name_that_the_api_takes_a_rule_may_give(name: str) -> None:
    assert decoding.name("name", name) == name
    assert act("set-attribute", {"path": "name", "value": name}).node.name == name
    assert act("set-port-attribute", {"port_id": "p1", "path": "name", "value": name}).port.name == name


@each("path", ["uuid", "state", "internal/agent_secret_token", "provision_state", "__class__", "traits"])
def test_other_fields_cannot_be_written(path: str) -> None:
    with pytest.raises(InvalidRuleError, match="rules cannot write"):
        act("set-attribute", {"path": path, "value": "x"})


def test_a_path_that_is_known_late_is_checked_late() -> None:
    with pytest.raises(RuleFailedError, match="rules cannot write"):
        act("set-attribute", {"path": "{item}", "value": "x"}, loop=["internal/x"])


def test_nothing_is_written_below_what_is_no_object() -> None:
    with pytest.raises(RuleFailedError, match="not an object"):
        act("set-attribute", {"path": "properties/a/b", "value": 1}, Site(properties={"a": 3}))


def test_a_driver_must_be_enabled() -> None:
    assert act("set-attribute", {"path": "driver", "value": "redfish"}).node.driver == "redfish"
    with pytest.raises(RuleFailedError, match="not enabled"):
        act("set-attribute", {"path": "driver", "value": "none-such"})


def test_a_new_driver_resets_interfaces_in_introspection_rules_unless_told_otherwise() -> None:
    attributes = {"boot_interface": "ipxe", "description": "x"}
    site = old_act("set-attribute", Site(attributes=attributes), path="/driver", value="redfish")
    assert site.node.attributes == {"description": "x"}
    kept = old_act(
        "set-attribute", Site(attributes=attributes), path="/driver", value="redfish", reset_interfaces=False
    )
    assert kept.node.attributes == attributes


def test_lists_are_extended_once_or_always() -> None:
    args = {"path": "extra/tags", "value": "new"}
    site = Site(extra={"tags": ["new"]})
    assert act("extend-attribute", args | {"unique": True}, site).node.extra == {"tags": ["new"]}
    assert act("extend-attribute", args, site).node.extra == {"tags": ["new", "new"]}
    assert act("extend-attribute", args).node.extra == {"tags": ["new"]}
    with pytest.raises(RuleFailedError, match="not a list"):
        act("extend-attribute", args, Site(extra={"tags": 3}))


def test_attributes_are_deleted_and_absent_ones_ignored() -> None:
    site = act("del-attribute", {"path": "extra/a/b"}, Site(extra={"a": {"b": 1, "c": 2}}))
    assert act("del-attribute", {"path": "extra/x/y"}, site).node.extra == {"a": {"c": 2}}
    assert act("del-attribute", {"path": "resource_class"}, Site(resource_class="x")).node.resource_class is None
    assert act("del-attribute", {"path": "extra"}, site).node.extra == {}
    with pytest.raises(RuleFailedError, match="driver"):
        act("del-attribute", {"path": "driver"})


def test_capabilities_are_replaced_not_repeated() -> None:
    site = Site(properties={"capabilities": "boot_mode:uefi,size:1"})
    act("set-capability", {"name": "size", "value": "{inventory[cpu][count]}"}, site)
    assert site.node.properties["capabilities"] == "boot_mode:uefi,size:8"
    act("unset-capability", {"name": "boot_mode"}, site)
    assert site.node.properties["capabilities"] == "size:8"


@each("value", ["a,b:c", "a:b", ""])
def test_a_machine_cannot_smuggle_in_capabilities(value: str) -> None:
    site = Site({"value": value})
    with pytest.raises(RuleFailedError, match="capability value"):
        act("set-capability", {"name": "size", "value": "{plugin_data[value]}"}, site)


def test_traits_come_and_go() -> None:
    site = act("add-trait", {"name": "CUSTOM_A"})
    act("add-trait", {"name": "CUSTOM_A"}, site)
    act("add-trait", {"name": "CUSTOM_{node.name}_{inventory[cpu][count]}"}, Site(name="B"))
    assert site.node.attributes == {"traits": ["CUSTOM_A"]}
    assert act("remove-trait", {"name": "CUSTOM_A"}, site).node.attributes == {}
    act("remove-trait", {"name": "CUSTOM_A"}, site)
    with pytest.raises(InvalidRuleError, match="invalid trait"):
        act("add-trait", {"name": "custom-a"})


def test_plugin_data_are_set_extended_and_unset() -> None:
    site = Site({"a": {"b": 1}})
    act("set-plugin-data", {"path": "a.c", "value": "{inventory[memory]}"}, site)
    act("extend-plugin-data", {"path": "list", "value": 1}, site)
    act("extend-plugin-data", {"path": "list", "value": 1, "unique": True}, site)
    act("unset-plugin-data", {"path": "a.b"}, site)
    act("unset-plugin-data", {"path": "x.y"}, site)
    assert site.plugin_data == {"a": {"c": {"physical_mb": 65536}}, "list": [1]}


@each("ident", ["p1", MAC, MAC.upper(), "{ports[0][uuid]}", "{inventory[interfaces][0][mac_address]}"])
def test_a_port_is_named_by_uuid_or_mac(ident: str) -> None:
    site = act("set-port-attribute", {"port_id": ident, "path": "physical_network", "value": "net1"})
    assert site.port.physical_network == "net1"
    assert site.context.ports[0].physical_network is None


def test_port_attributes_are_extended_and_deleted() -> None:
    site = act("extend-port-attribute", {"port_id": "p1", "path": "extra/x", "value": 1})
    assert site.port.extra == {"x": [1]}
    act("set-port-attribute", {"port_id": "p1", "path": "pxe_enabled", "value": "no"}, site)
    assert site.port.pxe_enabled is False
    act("del-port-attribute", {"port_id": "p1", "path": "extra/x"}, site)
    assert site.port.extra == {}
    with pytest.raises(InvalidRuleError, match="cannot write"):
        act("set-port-attribute", {"port_id": "p1", "path": "address", "value": MAC})
    with pytest.raises(RuleFailedError, match="no port"):
        act("set-port-attribute", {"port_id": "p2", "path": "extra/x", "value": 1})


def test_an_action_is_repeated_for_each_item() -> None:
    args = {"path": "nics.{item[name]}", "value": "{item[speed]}"}
    site = act("set-plugin-data", args, loop="{inventory[interfaces]}")
    assert site.plugin_data == {"nics": {"eno1": 25000, "eno2": 1000}}


def test_a_placeholder_without_a_value_fails_the_rule() -> None:
    with pytest.raises(RuleFailedError, match=r"inventory\[nothing\] does not exist"):
        act("set-plugin-data", {"path": "x", "value": "{inventory[nothing]}"})


def test_fail_refuses_the_machine_in_the_rules_own_words() -> None:
    with pytest.raises(RuleFailedError, match=r"only 8 CPUs, {inventory\[gone\]}") as failure:
        act("fail", {"msg": "only {inventory[cpu][count]} CPUs, {inventory[gone]}"})
    assert failure.value.reason is Reason.REFUSED_BY_RULE
    assert failure.value.rule == "r1"


def test_fail_of_an_introspection_rule_says_what_is_written() -> None:
    with pytest.raises(RuleFailedError, match=r"{{x}} {data"):
        old_act("fail", message="{{x}} {data[a]}")


def test_messages_are_logged_with_their_level() -> None:
    site = act("log", {"msg": "{node.name} has {inventory[cpu][count]}", "level": "WARNING"})
    assert [(one.level, one.message) for one in site.rule_context.logged] == [("warning", "one has 8")]
    with pytest.raises(InvalidRuleError, match=r"args.level: must be one of"):
        act("log", {"msg": "x", "level": "loud"})


def test_a_sensitive_rule_logs_nothing_and_its_failure_says_nothing() -> None:
    site = Site()
    site.run(rule({"op": "log", "args": {"msg": "secret"}}, sensitive=True))
    assert site.rule_context.logged == []
    with pytest.raises(RuleFailedError) as failure:
        site.run(rule({"op": "fail", "args": {"msg": "secret"}}, sensitive=True, description="secret"))
    assert failure.value.message == "the rule r1 refused the machine"


def test_an_api_call_is_only_asked_for_and_its_values_are_escaped() -> None:
    url = "https://cmdb.example.com/hooks/{inventory[system_vendor][serial_number]}?n={node.name}"
    call = act("api-call", {"url": url, "headers": {"X-Node": "{node.uuid}"}, "timeout": "2"}).rule_context.calls[0]
    assert call.url == "https://cmdb.example.com/hooks/S%201%2F2?n=one"
    assert (call.headers, call.timeout, call.retries, call.backoff) == ({"X-Node": "a1"}, 2.0, 3, 0.3)


@each(
    "args",
    [
        {"url": "file:///etc/passwd"},
        {"url": "https://user:word@example.com/"},
        {"url": "https://example.com/", "timeout": 31},
        {"url": "https://example.com/", "retries": 6},
        {"url": "https://example.com/", "backoff_factor": -1},
    ],
)
def test_an_api_call_has_limits(args: Document) -> None:
    with pytest.raises(InvalidRuleError, match="must be"):
        act("api-call", args)


def test_an_api_call_does_not_go_to_a_host_that_may_be_another_one() -> None:
    with pytest.raises(InvalidRuleError, match=r"10\.40\.0\.33"):
        act("api-call", {"url": "https://10.40.0.041/"})


def test_headers_cannot_be_split() -> None:
    with pytest.raises(RuleFailedError, match="header"):
        act("api-call", {"url": "https://example.com/", "headers": {"X": "a\r\nY: b"}})


def test_introspection_rules_read_data_in_values() -> None:
    site = old_act("set-attribute", path="/properties/mem", value="{data[inventory][memory][physical_mb]}")
    assert site.node.properties == {"mem": 65536}
    old_act("set-capability", site, name="cpus", value="{data[inventory][cpu][count]}")
    old_act("extend-attribute", site, path="/extra/list", value="x", unique=True)
    old_act("add-trait", site, name="CUSTOM_OLD")
    assert site.node.properties["capabilities"] == "cpus:8"
    assert site.node.extra == {"list": ["x"]}
    old_act("remove-trait", site, name="CUSTOM_OLD")
    assert site.node.attributes == {}


@each(
    ("op", "args", "problem"),
    [
        ("log", {"msg": "x"}, "unknown action"),
        ("set-attribute", {"path": "/extra/x"}, "value is missing"),
        ("set-attribute", {"path": "/extra/x", "value": 1, "unique": True}, "unknown argument 'unique'"),
        ("set-attribute", {"path": "/extra/x", "value": 1, "reset_interfaces": True}, "reset_interfaces"),
        ("set-attribute", {"path": "/extra/x", "value": "{node.uuid}"}, "one of: data"),
        ("fail", {}, "msg is missing"),
    ],
)
def test_what_the_other_dialect_does_not_have_is_refused(op: str, args: Document, problem: str) -> None:
    with pytest.raises(InvalidRuleError, match=problem):
        old_act(op, **args)


def test_a_discovered_node_is_approved() -> None:
    site = act("approve", {}, Site(inbox=True, auto_discovered=True))
    assert site.node.inbox is False
    assert act("approve", {}).node.inbox is False
