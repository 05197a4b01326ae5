"""States are declared in one file: nobody else has a set of them, and a new one needs that file and its own code."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import ferroscope
from ferroscope.core import states
from ferroscope.core.states import STATES, Provision, State

SOURCE = Path(ferroscope.__file__).parent
ROOT = Path(__file__).parents[3]
# The tables themselves.
DECLARED = frozenset({"core/states.py"})
WORDS = (frozenset(map(str, State)), frozenset(map(str, Provision)))


def private_sets(text: str) -> Iterator[int]:
    """Yield the lines on which something names several states at once, as members, as words, or in conditions."""
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
    return _is_member(right) or (isinstance(right, ast.Name) and isinstance(getattr(states, right.id, None), frozenset))


def test_nobody_else_has_a_set_of_states() -> None:
    found = {
        str(path.relative_to(SOURCE)): lines
        for path in SOURCE.rglob("*.py")
        if (lines := list(private_sets(path.read_text()))) and str(path.relative_to(SOURCE)) not in DECLARED
    }
    assert not found


@pytest.mark.parametrize(
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


def test_every_state_is_in_the_table() -> None:
    assert list(STATES) == list(State)


NEW_STATE = (
    ('    ENROLLING = "enrolling"\n', '    ENROLLING = "enrolling"\n    BURNING = "burning"\n'),
    (
        "    State.FINISHED: StateFlags(\n",
        "    State.BURNING: StateFlags(\n"
        '        meaning="The machine is under full load.",\n'
        "        provision=Provision.INSPECT_WAIT,\n"
        "        active=True,\n        machine=True,\n        may_boot=True,\n        ramdisk=True,\n"
        '        log="burning in",\n'
        "    ),\n"
        "    State.FINISHED: StateFlags(\n",
    ),
    (
        "none       | enroll          | enrolling\n",
        "none       | enroll          | burning\nburning | continue ! | processing\nburning | timeout | error\n"
        "burning | abort | error\nburning | fail | error\nburning | delete | none\n",
    ),
)
# Everything that is made of the table, asked for the new state in a process that has only read the changed one.
USE = """
import json
from structlog.testing import capture_logs
from ferroscope import transition
from ferroscope.db import macs, nodes
from ferroscope.api.baremetal import node_states
from ferroscope.api.http import schemas
from ferroscope.api import introspection
from tools.docs import states as page
from ferroscope.core import delivery, states
from ferroscope.core.model import Inspection, Node
from ferroscope.telemetry import log
from ferroscope.contracts.telemetry import Moved

new = states.State("burning")
row = delivery.advance(states.State.NONE, states.Event.ENROLL)
assert row.target is new
node = transition._moved(Node(uuid="u", driver="sim"), row, 1.0)
assert (node.state, node.provision_state) == (new, "enroll")  # nobody asked for it
node = transition._moved(Node(uuid="u", driver="sim", provision_state="manageable"), row, 1.0)
assert (node.state, node.provision_state) == (new, "inspect wait")
assert node_states.allowed_verbs(node) == ["abort"] and not delivery.is_inspectable(node)
assert new in macs._STATES and new in states.AWAITED and new in states.TIMES_OUT and new in states.MACHINE
assert "burning" in nodes._callers().compile().params.values()
assert "burning" in introspection._INTROSPECTED
assert "burning" in json.dumps(schemas.IntrospectionState.__metadata__[0].extra_json_schema)
assert "| `burning` | active, may boot, takes a callback, times out | The machine is " in page.render()
assert "burning --> processing: continue !" in page.render()
with capture_logs() as logs:
    log.log_transition(Moved(row, node, Inspection(uuid="i", node="u", state=new, started_at=1.0)))
assert logs[0]["event"] == "burning in"
"""


def test_a_new_state_needs_no_other_file(tmp_path: Path) -> None:
    shutil.copytree(SOURCE, tmp_path / "ferroscope", ignore=shutil.ignore_patterns("__pycache__"))
    table = tmp_path / "ferroscope" / "core" / "states.py"
    text = table.read_text()
    for old, new in NEW_STATE:
        assert text.count(old) == 1
        text = text.replace(old, new)
    table.write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", USE],
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT)))},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
