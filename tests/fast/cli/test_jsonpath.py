"""``-o jsonpath=``: the templates that scripts know from kubectl."""

from __future__ import annotations

import pytest

from ferroscope_client.cli.jsonpath import Template, TemplateError
from ferroscope_client.errors import Exit
from tests.fast.cli.running import run
from tests.support.rows import each

NODES = [
    {"name": "a", "maintenance": False, "hardware": {"cpus": 8}, "ports": ["m1", "m2"], "owner": None},
    {"name": "b", "maintenance": True, "hardware": {}, "ports": [], "owner": "lab"},
]


@each(
    ("template", "expected"),
    [
        ("{.items[*].name}", "a b"),
        (".items[*].name", "a b"),
        ("{$.items[0].hardware.cpus}", "8"),
        ("{.items[-1:].name}", "b"),
        ("{.items[1]['name']}", "b"),
        ("{..cpus}", "8"),
        ("{.items[*].maintenance}", "false true"),
        ("{.items[0].hardware}", '{"cpus": 8}'),
        ("{.items[0].owner}|{.items[0].nothing}|{.items[7].name}", "||"),
        ("names: {.items[*].name}!", "names: a b!"),
        ('{range .items[*]}{.name}{"\\t"}{.hardware.cpus}{"\\n"}{end}', "a\t8\nb\t\n"),
        ("{range .items[*]}{.name}:{range .ports[*]} <{@}>{end};{end}", "a: <m1> <m2>;b:;"),
        ("{'{}'}", "{}"),
    ],
)
def test_a_template_is_filled_in(template: str, expected: str) -> None:
    assert Template(template).render(NODES) == expected


def test_an_object_is_the_root_itself() -> None:
    assert Template("{.name} {.ports[1]}").render(NODES[0]) == "a m2"


@each("template", ["{", "}", "{.a", "{.items[?(@.x)]}", "{end}", "{range .items[*]}{.name}", '{"\\q"}', "{.a}}", "{-}"])
def test_an_invalid_template_is_refused(template: str) -> None:
    with pytest.raises(TemplateError):
        Template(template)


def test_a_command_takes_a_template_and_refuses_an_invalid_one() -> None:
    found = run("explain", "timeout", "-o", "jsonpath={.reason}: {.commands[0]}")
    assert found.stdout == "timeout: ferroscope node timeline NODE\n"
    assert run("explain", "timeout", "-o", "jsonpath={").exit_code == Exit.USAGE
    assert run("explain", "timeout", "-o", "xml").exit_code == Exit.USAGE
