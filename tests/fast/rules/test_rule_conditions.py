"""Every operator in both dialects: types, inversion, missing data, loops, and several values."""

from __future__ import annotations

from typing import Any

import pytest

from ferroscope.rules.data import InvalidRuleError, RuleFailedError
from tests.fast.rules.running import MAC, Site, found, holds, old_rule, rule
from tests.support.rows import each

MEMORY = "{inventory[memory][physical_mb]}"
CPUS = "{inventory[cpu][count]}"
NICS = "{inventory[interfaces]}"


@each(
    ("op", "values", "expected"),
    [
        ("eq", [MEMORY, 65536], True),
        ("eq", [MEMORY, "65536"], True),
        ("eq", [MEMORY, 65536.0], True),
        ("eq", [MEMORY, "lots"], False),
        ("eq", [CPUS, 8, "8"], True),
        ("eq", ["{inventory[interfaces][0][has_carrier]}", True], True),
        ("eq", ["{inventory[interfaces][0][has_carrier]}", "True"], True),
        ("eq", ["{inventory[interfaces][0][has_carrier]}", 1], False),
        ("eq", ["8", "8.0"], False),
        ("eq", ["{inventory[cpu][flags]}", ["vmx", "aes"]], True),
        ("eq", ["only one"], True),
        ("ne", [CPUS, 9], True),
        ("ne", [CPUS, "8"], False),
        ("lt", [CPUS, 10], True),
        ("lt", [CPUS, "10"], True),
        ("lt", [1, CPUS, 10], True),
        ("lt", [9, CPUS, 10], False),
        ("le", [CPUS, 8], True),
        ("gt", [CPUS, 8], False),
        ("gt", [CPUS, 7.5], True),
        ("ge", [CPUS, 8], True),
        ("ge", ["b", "a"], True),
        ("!eq", [CPUS, 9], True),
        ("! eq", [CPUS, 8], False),
    ],
)
def test_values_compare_with_the_types_they_have(op: str, values: list[Any], expected: bool) -> None:
    assert holds(op, {"values": values}) is expected


def test_numbers_can_be_forced_to_compare_as_texts() -> None:
    assert holds("lt", {"values": [CPUS, 10]})
    assert not holds("lt", {"values": [CPUS, 10], "force_strings": True})


def test_arguments_may_be_given_by_position() -> None:
    assert holds("eq", [[CPUS, 8]])
    assert holds("eq", [CPUS, 8])
    assert holds("in-net", ["{inventory[bmc_address]}", "192.0.2.0/24"])


@each("values", [[CPUS, {}], [True, 1], ["x", 3]])
def test_what_has_no_order_fails_the_rule(values: list[Any]) -> None:
    with pytest.raises(RuleFailedError, match="cannot be ordered"):
        holds("lt", {"values": values})


@each(
    ("op", "value", "expected"),
    [
        ("is-empty", "{inventory[hostname]}", True),
        ("is-empty", "{inventory[nothing]}", True),
        ("is-empty", "{inventory[cpu]}", False),
        ("is-empty", "{plugin_data}", True),
        ("is-empty", 0, False),
        ("is-empty", "None", False),
        ("!is-empty", "{inventory[nothing]}", False),
        ("is-none", "{inventory[nothing]}", True),
        ("is-none", "{node.resource_class}", True),
        ("is-none", "{inventory[hostname]}", False),
        ("is-true", "{inventory[interfaces][0][has_carrier]}", True),
        ("is-true", "{inventory[interfaces][1][has_carrier]}", False),
        ("is-true", "Yes", True),
        ("is-true", 2, True),
        ("is-true", "{inventory[nothing]}", False),
        ("is-true", [1], False),
        ("is-false", "{inventory[interfaces][1][has_carrier]}", True),
        ("is-false", "no", True),
        ("is-false", 0, True),
        ("is-false", None, True),
        ("is-false", "{inventory[nothing]}", True),
        ("is-false", [], False),
    ],
)
def test_questions_about_one_value(op: str, value: Any, expected: bool) -> None:
    assert holds(op, {"value": value}) is expected


@each(
    ("address", "subnet", "expected"),
    [
        ("{inventory[bmc_address]}", "192.0.2.0/24", True),
        ("{inventory[bmc_address]}", "192.0.2.1/24", True),
        ("{inventory[bmc_address]}", "198.51.100.0/24", False),
        ("2001:db8::1", "2001:db8::/32", True),
        ("{inventory[bmc_address]}", "2001:db8::/32", False),
        ("{inventory[hostname]}", "192.0.2.0/24", False),
    ],
)
def test_addresses_in_networks(address: str, subnet: str, expected: bool) -> None:
    assert holds("in-net", {"address": address, "subnet": subnet}) is expected


def test_what_is_no_address_fails_the_rule() -> None:
    with pytest.raises(RuleFailedError, match="does not appear to be an IPv4 or IPv6 address"):
        holds("in-net", {"address": "{inventory[cpu][architecture]}", "subnet": "192.0.2.0/24"})


@each(
    ("op", "regex", "expected"),
    [
        ("contains", "(?i)dell", True),
        ("contains", "dell", False),
        ("matches", "Dell.*", True),
        ("matches", "Dell", False),
        ("matches", "Dell.*$", True),
        ("matches", "HP|Dell", False),
        ("!matches", "HP.*", True),
        ("contains", "l{2}", True),
    ],
)
def test_regular_expressions(op: str, regex: str, expected: bool) -> None:
    value = "{inventory[system_vendor][manufacturer]}"
    assert holds(op, {"value": value, "regex": regex}) is expected


def test_a_regular_expression_that_takes_too_long_fails_the_rule_in_time() -> None:
    args = {"value": "a" * 5000 + "!", "regex": "(a|aa)+$"}
    with pytest.raises(RuleFailedError, match="took too long"):
        holds("contains", args)


@each(
    ("value", "values", "expected"),
    [
        (CPUS, [4, 8], True),
        (CPUS, ["8"], True),
        (CPUS, [], False),
        ("{inventory[cpu][architecture]}", ["x86_64", "{node.name}"], True),
        ("one", ["{node.name}"], True),
        ("{inventory[nothing]}", ["x"], False),
    ],
)
def test_one_of_several_values(value: Any, values: list[Any], expected: bool) -> None:
    assert holds("one-of", {"value": value, "values": values}) is expected


@each("op", ["eq", "!eq", "ne", "lt", "!lt"])
def test_a_comparison_with_what_is_missing_does_not_hold_either_way(op: str) -> None:
    assert not holds(op, {"values": ["{inventory[nothing]}", 1]})


@each(
    ("multiple", "wanted", "expected"),
    [
        ("any", "eno2", True),
        ("any", "eno3", False),
        ("all", "eno1", False),
        ("first", "eno1", True),
        ("first", "eno2", False),
        ("last", "eno2", True),
        ("last", "eno1", False),
        (None, "eno2", True),
    ],
)
def test_a_loop_over_what_the_data_hold(multiple: str | None, wanted: str, expected: bool) -> None:
    more = {} if multiple is None else {"multiple": multiple}
    assert holds("eq", {"values": ["{item[name]}", wanted]}, loop=NICS, **more) is expected


def test_a_loop_over_written_items_renders_their_placeholders() -> None:
    items = [{"is": "{inventory[cpu][count]}", "wanted": 8}, {"is": MEMORY, "wanted": 65536}]
    assert holds("eq", {"values": ["{item[is]}", "{item[wanted]}"]}, loop=items, multiple="all")


def test_an_object_is_one_item() -> None:
    assert holds("eq", {"values": ["{item[a]}", 1]}, loop={"a": 1, "b": 2})


def test_numbers_in_a_loop_stay_numbers() -> None:
    assert holds("gt", {"values": ["{item[speed]}", 9000]}, loop=NICS, multiple="first")


def test_data_that_looks_like_a_placeholder_is_text() -> None:
    site = Site()
    assert holds(
        "eq", {"values": ["{item}", "R640 {{node.uuid}}"]}, site, loop=["{inventory[system_vendor][product_name]}"]
    )


def test_an_empty_loop_over_data_holds_for_all_and_not_for_any() -> None:
    site = Site({"none": []})
    assert not holds("eq", {"values": [1, 1]}, site, loop="{plugin_data[none]}")
    assert holds("eq", {"values": [1, 1]}, Site({"none": []}), loop="{plugin_data[none]}", multiple="all")


def test_a_loop_over_something_else_fails_the_rule() -> None:
    with pytest.raises(RuleFailedError, match=r"loop .*int"):
        holds("eq", {"values": [1, 1]}, loop=CPUS)


@each(
    ("field", "op", "value", "expected"),
    [
        ("inventory.memory.physical_mb", "ge", 65536, True),
        ("inventory.memory.physical_mb", "eq", "65536", True),
        ("data://inventory.cpu.architecture", "eq", "x86_64", True),
        ("node://driver", "eq", "fake-hardware", True),
        ("node://properties.size", "eq", 3, True),
        ("node://properties.size", "!eq", 3, False),
        ("$.inventory.interfaces[*].name", "eq", "eno2", True),
        ("inventory.interfaces[0].name", "eq", "eno1", True),
        ("inventory.interfaces[-1].name", "eq", "eno2", True),
        ("inventory.interfaces[0:1].name", "eq", "eno2", False),
        ("inventory..speed", "eq", 1000, True),
        ("inventory['cpu']['count']", "gt", 7, True),
        ("inventory.cpu.*", "eq", 8, True),
        ("inventory.cpu.count,architecture", "eq", "x86_64", True),
        ("extra", "eq", "from plugin data", True),
        ("nothing.at.all", "eq", 1, False),
        ("nothing.at.all", "!eq", 1, False),
        ("nothing.at.all", "is-empty", None, True),
        ("inventory.hostname", "is-empty", None, True),
        ("inventory.cpu", "!is-empty", None, True),
        ("inventory.bmc_address", "in-net", "192.0.2.0/24", True),
        ("inventory.system_vendor.manufacturer", "matches", "Dell.*", True),
        ("inventory.system_vendor.manufacturer", "contains", "ell", True),
        ("inventory.bmc_password", "eq", "******", True),
        ("inventory..bmc_password", "eq", "hunter2", False),
        ("node://driver_info..*", "eq", "secret", False),
    ],
)
def test_conditions_of_introspection_rules(field: str, op: str, value: Any, expected: bool) -> None:
    site = Site(
        {"extra": "from plugin data"},
        properties={"size": 3},
        driver_info={"redfish_password": "secret", "auth": {"token": {"value": "secret"}}},
    )
    assert found(field, op, value, site) is expected


@each(("multiple", "expected"), [("any", True), ("all", False), ("first", False), (None, True)])
def test_several_values_at_a_path(multiple: str | None, expected: bool) -> None:
    more = {} if multiple is None else {"multiple": multiple}
    assert found("inventory.interfaces[*].name", "eq", "eno2", **more) is expected


def test_all_conditions_must_hold() -> None:
    yes, no = {"op": "eq", "args": [1, 1]}, {"op": "eq", "args": [1, 2]}
    assert Site().run(rule(conditions=[yes, yes])) == ["r1"]
    assert Site().run(rule(conditions=[yes, no])) == []


@each("path", ["a[", "a.b[?(@.x)]", "a...b", "$$", "a b", "a.`this`", "a" * 600, "[99999999999]"])
def test_a_path_that_cannot_be_read_is_refused(path: str) -> None:
    with pytest.raises(InvalidRuleError, match=r"conditions\[0\]: field: "):
        Site().run(old_rule(conditions=[{"op": "eq", "args": {"field": path, "value": 1}}]))


# What ironic-inspector's default hooks add to the data (plugins/standard.py); its own suite has rules on these.


@each(
    ("field", "op", "value"),
    [
        ("memory_mb", "eq", 65536),
        ("memory_mb", "ge", 65536),
        ("cpus", "gt", 7),
        ("cpu_arch", "contains", "[0-9]+"),
        ("local_gb", "gt", 998),
        ("local_gb", "lt", 1000),
        ("local_gb", "matches", "[0-9]+"),
        ("data://local_gb", "eq", "999"),
        ("root_disk.wwn", "is-empty", None),
        ("i.do.not.exist", "is-empty", None),
        ("all_interfaces.eno1.mac", "eq", MAC),
        ("interfaces[*].pxe", "is-empty", None),
        ("all_interfaces.*.pxe", "eq", True),
        ("boot_interface", "contains", "52-54"),
        ("ipmi_address", "in-net", "192.0.2.0/24"),
    ],
)
def test_introspection_rules_see_what_inspectors_default_hooks_add(field: str, op: str, value: Any) -> None:
    nic = {"mac_address": MAC, "pxe_enabled": True, "ipv4_address": "192.0.2.9"}
    plugin_data = {
        "root_disk": {"name": "/dev/sda", "size": 1000 << 30, "wwn": None},
        "all_interfaces": {"eno1": nic},
        "boot_interface": "01-52-54-00-00-00-01",
    }
    assert found(field, op, value, Site(plugin_data))


def test_placeholders_of_introspection_rules_see_them_too() -> None:
    site = Site()
    act = {"op": "set-attribute", "args": {"path": "/extra/size", "value": "{data[cpus]}x{data[memory_mb]}"}}
    assert site.run(old_rule(act)) == ["r1"]
    assert site.node.extra == {"size": "8x65536"}


def test_introspection_rules_see_what_a_rule_before_them_has_written() -> None:
    site = Site()
    write = rule({"op": "set-plugin-data", "args": {"path": "memory_mb", "value": 5}}, uuid="w", priority=5)
    read = old_rule({"op": "set-attribute", "args": {"path": "/extra/seen", "value": "{data[memory_mb]}"}})
    site.run(write, read)
    assert site.node.extra == {"seen": 5}


def test_a_rule_on_a_field_that_is_not_there_is_remembered() -> None:
    site = Site()
    old = old_rule(conditions=[{"op": "ge", "args": {"field": "memory_mbb", "value": 1}}], uuid="old")
    new = rule(conditions=[{"op": "eq", "args": ["{inventory[cpux]}", 8]}], uuid="new")
    hidden = rule(conditions=[{"op": "eq", "args": ["{inventory[secret]}", 8]}], uuid="hidden", sensitive=True)
    other = rule(conditions=[{"op": "eq", "args": ["{inventory[cpu][count]}", 9]}], uuid="other")
    empty = old_rule(conditions=[{"op": "is-empty", "args": {"field": "nothing"}}], uuid="empty")
    assert site.run(old, new, hidden, other, empty) == ["empty"]
    assert {one.rule: one.field for one in site.rule_context.unmatched} == {
        "old": "data://memory_mbb",
        "new": "inventory[cpux]",
        "hidden": None,
    }
