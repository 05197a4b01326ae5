"""The reference page of the states is the one that the table gives."""

from __future__ import annotations

import re

from ferroscope.core.states import COMMANDS, TRANSITIONS, Event, State
from tools.docs.states import render


def test_the_diagram_draws_every_transition_that_not_every_state_has() -> None:
    drawn = {
        (source, event, target)
        for source, target, events in re.findall(r"^    (\w+) --> (\w+): (.+)$", render(), re.MULTILINE)
        for event in re.sub(" [!~]", "", events).split(", ")
    }
    left_out = {Event.DELETE, *COMMANDS}
    assert drawn == {(row.source, row.event, row.target) for row in TRANSITIONS if row.event not in left_out}


def test_the_diagram_says_what_it_does_not_draw() -> None:
    assert re.search(r"^Not drawn: `delete`, .* `none`\.$", render(), re.MULTILINE)


def test_the_table_has_every_transition_with_its_flags() -> None:
    page = render()
    for row in TRANSITIONS:
        strict, automatic = ("yes" if flag else "" for flag in (row.strict, row.automatic))
        assert f"| `{row.source}` | `{row.event}` | `{row.target}` | {strict} | {automatic} |" in page


def test_every_state_is_explained() -> None:
    for state in State:
        assert re.search(rf"^\| `{state}` \| [a-z, ]* \| [A-Z].+\. \|$", render(), re.MULTILINE)
