"""Messages for users of the command line mention commands, not API calls."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import ferroscope
from ferroscope.cli.client import as_commands

_SOURCE: Final = Path(ferroscope.__file__).parent
# Leases are for programs: there are no commands for them.
_CALL: Final = re.compile(r"\b(GET|POST|PUT|PATCH|DELETE) /v1/(?!lease)")


def _texts(tree: ast.AST) -> Iterator[str]:
    documentation = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if id(node) in parts:
            continue
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "n1" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            yield node.value


def test_every_call_that_a_message_names_is_a_command_for_operators() -> None:
    found = {}
    for package in ("api", "domain", "worker", "adapters", "runtime", "rules", "hooks"):
        for file in (_SOURCE / package).rglob("*.py"):
            if file.name == "routes.py":
                continue
            for text in _texts(ast.parse(file.read_text(encoding="utf-8"))):
                if _CALL.search(text) and " " in text.replace(_CALL.search(text)[0], ""):  # type: ignore[index]
                    found[text] = as_commands(text)
    assert found
    assert [text for text in found.values() if _CALL.search(text)] == []


def test_calls_become_the_commands_that_do_them() -> None:
    assert as_commands("approve it first: POST /v1/nodes/n1/approve.") == (
        "approve it first: ferroscope node approve n1."
    )
    message = as_commands('abort first: PUT /v1/nodes/n1/states/provision with {"target": "abort"}.')
    assert message == "abort first: ferroscope node abort n1."
    assert as_commands("Set ipmi_password in the same request, or remove") == (
        "Give it again with -d ipmi_password=@-, or remove"
    )
    assert "'ferroscope driver list'" in as_commands("GET /v1/drivers lists those that are.")
