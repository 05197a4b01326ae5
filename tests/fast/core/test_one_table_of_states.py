"""States are declared in one file: nobody else has a set of them, and a new one needs that file and its own code."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import ferroscope
import ferroscope_client
from ferroscope.core import states
from ferroscope_client.core import states as client_states
from ferroscope_client.core.states import Provision, State
from tests.support.rows import each

SOURCES = [Path(package.__file__).parent for package in (ferroscope, ferroscope_client)]
TABLES = vars(states) | vars(client_states)
SETS = frozenset(name for name, found in TABLES.items() if isinstance(found, frozenset))
# The tables themselves.
DECLARED = frozenset({"core/states.py"})
WORDS = (frozenset(map(str, State)), frozenset(map(str, Provision)))
# One of them is in each file that names a state.
_SIGNS = ("State", *(f"{quote}{word}{quote}" for words in WORDS for word in words for quote in "'\""), *SETS)


def private_sets(text: str) -> Iterator[int]:
    """Yield the lines on which something names several states at once, as members, as words, or in conditions."""
    if not any(word in text for word in _SIGNS):
        return
    for found in ast.walk(ast.parse(text)):
        if isinstance(found, (ast.Tuple, ast.List, ast.Set)):
            words = {one.value for one in found.elts if isinstance(one, ast.Constant)}
            of_states = len(found.elts) > 1 and len(words) == len(found.elts) and any(words <= one for one in WORDS)
            if of_states or sum(_is_member(one) for one in found.elts) > 1:
                yield found.lineno
        elif isinstance(found, ast.Dict) and sum(_is_member(key) for key in found.keys) > 1:
            yield found.lineno
        elif isinstance(found, ast.BoolOp):
            compared = [ast.dump(one.left) for one in found.values if isinstance(one, ast.Compare) and _of_states(one)]
            if len(set(compared)) < len(compared):
                yield found.lineno


def _is_member(found: ast.AST | None) -> bool:
    return isinstance(found, ast.Attribute) and isinstance(found.value, ast.Name) and found.value.id == "State"


def _of_states(found: ast.Compare) -> bool:
    """Whether it compares with a state, or asks whether one is in a set of them."""
    right = found.comparators[0]
    return _is_member(right) or (isinstance(right, ast.Name) and right.id in SETS)


def test_nobody_else_has_a_set_of_states() -> None:
    found = {
        str(path): lines
        for source in SOURCES
        for path in source.rglob("*.py")
        if (lines := list(private_sets(path.read_text()))) and str(path.relative_to(source)) not in DECLARED
    }
    assert not found


@each(
    "text",
    [
        "x = frozenset({State.STARTING, State.WAITING})",
        "x = node.state in (State.STARTING, State.WAITING)",
        "x = node.state is State.STARTING or node.state is State.WAITING",
        "x = node.state in ACTIVE and node.state is not State.REAPPLYING",
        "x = {State.STARTING: 'begun', State.ENROLLING: 'called'}",
        "x = newest['state'] in ('finished', 'error')",
        "x = ('inspecting', 'inspect wait')",
    ],
)
def test_private_sets_are_found(text: str) -> None:
    assert list(private_sets(text)) == [1]
