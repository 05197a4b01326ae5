"""A new state needs its properties and its rows in the table of transitions, and no other file."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests import ROOT
from tests.system.extending.test_new_field import PACKAGES

NEW_STATE = {
    "ferroscope_client": (
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
    ),
    "ferroscope": (
        (
            "none       | enroll          | enrolling\n",
            "none       | enroll          | burning\nburning | continue ! | processing\nburning | timeout | error\n"
            "burning | abort | error\nburning | fail | error\nburning | delete | none\n",
        ),
    ),
}


# Everything that is made of the table, asked for the new state in a process that has only read the changed one.
USE = """
import json
from structlog.testing import capture_logs
from ferroscope import transition
from ferroscope.db import nodes, ports
from ferroscope.api.baremetal import provision
from ferroscope.api.http import schemas
from ferroscope.api import introspection
from tools.docs import states as page
from ferroscope.core import delivery, states
from ferroscope.core.model import Inspection, Node
from ferroscope.telemetry import log
from ferroscope.contracts.telemetry import Moved

from ferroscope_client.core.states import MACHINE, State

new = State("burning")
row = delivery.advance(State.NONE, states.Event.ENROLL)
assert row.target is new
node = transition._with_transition(Node(uuid="u", driver="sim"), row, 1.0)
assert (node.state, node.provision_state) == (new, "enroll")  # nobody asked for it
node = transition._with_transition(Node(uuid="u", driver="sim", provision_state="manageable"), row, 1.0)
assert (node.state, node.provision_state) == (new, "inspect wait")
assert provision.allowed_verbs(node) == ["abort"] and not delivery.is_inspectable(node)
assert new in ports._STATES and new in states.AWAITED and new in states.TIMES_OUT and new in MACHINE
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
    for package in PACKAGES:
        shutil.copytree(package, tmp_path / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    for package_name, changes in NEW_STATE.items():
        table = tmp_path / package_name / "core" / "states.py"
        text = table.read_text()
        for old, new in changes:
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
