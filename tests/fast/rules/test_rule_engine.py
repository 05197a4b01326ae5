"""Order, scope, atomicity of judgement, limits, and what no rule can ever read."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ferroscope.core.model import Document
from ferroscope.rules import builtin
from ferroscope.rules.builtin import is_allowed
from ferroscope.rules.data import InvalidRuleError, RuleBudget, RuleFailedError
from ferroscope.rules.engine import RuleSet, compile_rule
from ferroscope.rules.explain import DryContext, explain
from tests.fast.rules.running import DRIVERS, INVENTORY, Site, old_rule, rendered, rule
from tests.support.rows import each

SECRETS = ("hunter2", "s3cr3t", "t0ken")


def secretive() -> Site:
    return Site(
        driver_info={
            "redfish_password": "s3cr3t",
            "redfish_address": "https://root:s3cr3t@bmc/",
            "snmp_community": "s3cr3t",
        },
        internal={"agent_secret_token": "t0ken"},
        instance_info={"configdrive": "s3cr3t"},
    )


def note(text: str) -> Document:
    return {"op": "extend-plugin-data", "args": {"path": "order", "value": text}}


def test_greater_priority_first_then_age_and_built_in_last() -> None:
    rules = [
        compile_rule(rule(note("old"), uuid="1", created_at=1.0)),
        compile_rule(rule(note("new"), uuid="2", created_at=2.0)),
        compile_rule(rule(note("high"), uuid="3", priority=9, created_at=3.0)),
        compile_rule(rule(note("built in"), uuid="4"), built_in=True),
        compile_rule(rule(note("low"), uuid="5", priority=-1), built_in=True),
    ]
    assert [one.rule.uuid for one in RuleSet.of(1, rules).rules] == ["3", "1", "2", "4", "5"]


def test_a_rule_sees_what_the_one_before_it_did() -> None:
    first = rule({"op": "set-attribute", "args": ["extra/size", 3]}, uuid="1", priority=2)
    second = rule(uuid="2", conditions=[{"op": "eq", "args": ["{node.extra[size]}", 3]}])
    assert Site().run(second, first) == ["1", "2"]


def test_introspection_rules_are_all_asked_before_any_rule_acts() -> None:
    first = old_rule({"op": "set-attribute", "args": {"path": "/extra/size", "value": 3}}, uuid="1", priority=2)
    second = old_rule(uuid="2", conditions=[{"op": "eq", "args": {"field": "node://extra.size", "value": 3}}])
    assert Site().run(second, first) == ["1"]


@each(("scope", "applied"), [(None, ["r1"]), ("rack 1", ["r1"]), ("rack 2", [])])
def test_a_rule_with_a_scope_is_for_nodes_with_the_same(scope: str | None, applied: list[str]) -> None:
    for made in (rule(scope=scope), old_rule(scope=scope)):
        assert Site(properties={"inspection_scope": "rack 1"}).run(made) == applied
    assert Site().run(rule(scope="rack 1")) == []


@each(
    ("value", "expected"),
    [
        ("{inventory[cpu][count]}", 8),
        ("{inventory[interfaces][0][has_carrier]}", True),
        ("{inventory[cpu][flags]}", ["vmx", "aes"]),
        ("{node.name}", "one"),
        ("{node[name]}", "one"),
        ("{inventory[cpu][count]} CPUs", "8 CPUs"),
        ("{inventory[cpu][count]:05d}", "00008"),
        ("{node.name!r}", "'one'"),
        ("{{node.name}}", "{node.name}"),
        ("{{}} {node.name}", "{} one"),
        ("a{2,3} {} {0} {'x'}", "a{2,3} {} {0} {'x'}"),
        ({"{node.name}": ["{inventory[cpu][count]}", 1, None]}, {"one": [8, 1, None]}),
        ("{node.attributes}", None),
    ],
)
def test_placeholders(value: Any, expected: Any) -> None:
    if expected is None:
        with pytest.raises(RuleFailedError, match="does not exist"):
            rendered(value)
    else:
        assert rendered(value) == expected


@each("text", ["{nodes.name}", "{self}", "{__class__}", "{item}", "{node.name:>9999}"])
def test_what_is_no_placeholder_but_looks_like_one_is_refused(text: str) -> None:
    with pytest.raises(InvalidRuleError, match=r"actions\[0\]: args.value: "):
        rendered(text)


STEPS = st.lists(
    st.sampled_from(
        [
            "__class__", "__init__", "__globals__", "__dict__", "__mro__", "__subclasses__", "internal", "attributes",
            "driver_info", "redfish_password", "redfish_address", "snmp_community",
            "agent_secret_token",
            "instance_info", "configdrive", "bmc_password", "cpu", "version",
            "0", "-1", "keys", "items", "get", "state",
        ]
    ),
    max_size=5,
)  # fmt: skip


@given(
    root=st.sampled_from(["node", "inventory", "plugin_data", "ports"]),
    steps=STEPS,
    dots=st.lists(st.booleans(), min_size=5, max_size=5),
    suffix=st.sampled_from(["", "!r", "!s", ":>20"]),
    around=st.sampled_from(["{}", "x{}", "{}{}"]),
)
@example(root="node", steps=["__class__", "__init__", "__globals__"], dots=[True] * 5, suffix="", around="{}")
@example(root="node", steps=[], dots=[True] * 5, suffix="", around="{}")
def test_no_placeholder_reads_a_secret_or_an_attribute_of_an_object(
    root: str, steps: list[str], dots: list[bool], suffix: str, around: str
) -> None:
    path = "".join(f".{step}" if dot else f"[{step}]" for step, dot in zip(steps, dots, strict=False))
    text = around.replace("{}", f"{{{root}{path}{suffix}}}")
    try:
        out = str(rendered(text, secretive()))
    except RuleFailedError as exc:
        out = str(exc)
    assert not any(secret in out for secret in SECRETS)
    assert "function" not in out
    assert "<class" not in out
    assert "0x" not in out


@given(
    field=st.lists(
        st.sampled_from(["..", "*", ".driver_info", ".internal", "[*]", ".redfish_password", ".x"]), max_size=6
    )
)
def test_no_path_reads_a_secret_of_the_node(field: list[str]) -> None:
    path = "node://$" + "".join(field).replace("....", "..").replace("...", "..").replace("..[", ".x[")
    for secret in SECRETS:
        made = old_rule(conditions=[{"op": "contains", "args": {"field": path, "value": secret}}])
        try:
            assert secretive().run(made) == []
        except InvalidRuleError:
            return


def test_secrets_in_inspection_data_are_masked_as_configured() -> None:
    made = rule({"op": "set-plugin-data", "args": {"path": "out", "value": "{inventory[bmc_password]}"}})
    sensitive = rule(*made.actions, sensitive=True)
    for mask, one, expected in (
        ("always", made, "******"),
        ("always", sensitive, "******"),
        ("sensitive", made, "******"),
        ("sensitive", sensitive, "hunter2"),
        ("never", made, "hunter2"),
    ):
        site = Site()
        site.run(one, mask=mask)  # type: ignore[arg-type]
        assert site.plugin_data["out"] == expected


def test_data_cannot_be_made_to_grow_without_end() -> None:
    doubled = {"op": "extend-plugin-data", "args": {"path": "x", "value": "{plugin_data}"}, "loop": list(range(1000))}
    site = Site({"seed": "x" * 1000})
    with pytest.raises(RuleFailedError, match=r"rule data|nested more than"):
        site.run(rule(doubled))
    assert len(str(site.plugin_data)) < 2 * RuleBudget().size


def test_the_work_of_all_rules_together_has_an_end() -> None:
    loop = [{"op": "set-plugin-data", "args": {"path": "x", "value": 1}, "loop": list(range(1000))}] * 100
    with pytest.raises(RuleFailedError, match="100000 checks"):
        Site().run(rule(*loop, uuid="1"), rule(*loop, uuid="2"))


def test_every_problem_of_a_rule_is_reported_with_its_place() -> None:
    wrong = rule(
        {"op": "set-attribute", "args": {"path": "uuid", "values": 3}},
        {"op": "explode", "args": {}},
        conditions=[{"op": "matches", "args": {"value": "x", "regex": "("}}, {"op": "eq", "args": 3}],
    )
    with pytest.raises(InvalidRuleError) as error:
        compile_rule(wrong)
    text = str(error.value)
    for place in (
        "conditions[0]: args.regex: ",
        "conditions[1]: args must be",
        "actions[0]: unknown args.values",
        "actions[1]: unknown op 'explode'",
    ):
        assert place in text


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.text(max_size=20)
        | st.sampled_from(["{node}", "{inventory[cpu]}", "{item}"]),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(
                st.sampled_from(["op", "args", "loop", "path", "value", "multiple", "field", "a"]), inner, max_size=5
            )
        ),
        max_leaves=20,
    ),
    st.sampled_from(["eq", "in-net", "matches", "one-of", "set-attribute", "api-call", "set-port-attribute", "log"]),
)
def test_no_rule_whatever_it_says_raises_anything_else(body: Any, op: str) -> None:
    for make in (rule, old_rule):
        part = {"op": op, "args": body, **({"loop": body} if isinstance(body, list) else {})}
        with contextlib.suppress(InvalidRuleError, RuleFailedError):
            Site().run(make(part, conditions=[part]))
        with contextlib.suppress(InvalidRuleError, RuleFailedError):
            Site().run(make(part))


def test_a_dry_run_tells_what_it_saw_and_changes_nothing() -> None:
    site = Site()
    condition = {"op": "ge", "args": ["{inventory[memory][physical_mb]}", 1024]}
    made = rule({"op": "set-attribute", "args": ["extra/big", True]}, conditions=[condition])
    context = DryContext(site.node, site.context.ports)
    told = explain(RuleSet.of(1, [compile_rule(made)]), context, INVENTORY, {}, mask="always", drivers=DRIVERS)
    assert told.rules[0].result == "applied"
    assert told.rules[0].conditions is not None
    assert told.rules[0].conditions[0].checks[0].args == {"values": [65536, 1024], "force_strings": False}
    assert [(change.path, change.after) for change in told.node] == [("/extra/big", True)]
    assert site.node.extra == {}


def test_a_dry_run_of_a_sensitive_rule_tells_its_result_only() -> None:
    made = rule({"op": "fail", "args": {"msg": "s3cr3t"}}, sensitive=True)
    told = explain(RuleSet.of(1, [compile_rule(made)]), Site().context, INVENTORY, {}, mask="always", drivers=DRIVERS)
    assert (told.failed, told.rules[0].result) == (True, "failed")
    assert "s3cr3t" not in str(told)


def test_built_in_rules_are_read_from_yaml_and_checked() -> None:
    text = (
        b"- description: big\n  priority: -5\n  uuid: my-rule\n  actions: [{op: add-trait, args: {name: CUSTOM_BIG}}]\n"
    )
    (made,) = builtin.read("rules.yaml", text)
    assert (made.rule.uuid, made.rule.priority, made.built_in) == ("my-rule", -5, True)


@each(
    ("text", "problem"),
    [
        (b"{", "YAML"),
        (b"a: 1", "rules.yaml"),
        (b"- 3", "rule 1: Expected"),
        (b"- actions: []", "rule 1: actions: a rule needs at least one action"),
        (b"- actions: [{op: fail, args: {msg: x}}]\n  phase: late", "rule 1: phase must be one of main"),
        (b"- actions: [{op: nope, args: {}}]", r"rule 1: actions\[0\]: unknown op 'nope'"),
        (b"- actions: [{op: fail, args: {msg: x}}]\n  colour: red", "unknown field"),
        (b"- {uuid: a, actions: [{op: fail, args: [x]}]}\n- {uuid: a, actions: [{op: fail, args: [x]}]}", "uuid a"),
    ],
)
def test_a_wrong_file_of_built_in_rules_says_what_is_wrong(text: bytes, problem: str) -> None:
    with pytest.raises(InvalidRuleError, match=problem):
        builtin.read("rules.yaml", text)


@each(
    ("url", "expected"),
    [
        ("https://cmdb.example.com/hooks", True),
        ("https://cmdb.example.com/hooks/a?b=c", True),
        ("https://cmdb.example.com:443/hooks/a", True),
        ("https://CMDB.example.com/hooks/a", True),
        ("https://cmdb.example.com/hooksy", False),
        ("https://cmdb.example.com/hooks/../admin", False),
        ("https://cmdb.example.com/hooks/%2e%2e/admin", False),
        ("https://cmdb.example.com/hooks/%252e%252e/admin", False),
        ("https://cmdb.example.com/hooks/..%2fadmin", False),
        ("http://cmdb.example.com/hooks/a", False),
        ("https://cmdb.example.com:8443/hooks/a", False),
        ("https://cmdb.example.com.evil.example/hooks/a", False),
        ("https://cmdb.example.com@evil.example/hooks/a", False),
        ("https://evil.example/https://cmdb.example.com/hooks", False),
        ("file:///hooks", False),
    ],
)
def test_only_what_lies_below_a_target_may_be_called(url: str, expected: bool) -> None:
    assert is_allowed(url, ["https://cmdb.example.com/hooks"]) is expected
    assert is_allowed(url, []) is False
