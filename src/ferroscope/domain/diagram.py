"""The reference page of the states, drawn from the table itself: diagram, table, provision states.

Pure text. The committed page must equal ``render()``; a test holds the two together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from ferroscope.domain.provision import INSPECTABLE, OF_STATE, RESTING_VERBS
from ferroscope.domain.states import COMMANDS, INITIAL, TERMINAL, TRANSITIONS, Event, State, Transition

_STATES: Final = {
    State.NONE: "The node has never been inspected.",
    State.STARTING: "The inspection is accepted; the machine is being powered on to boot the ramdisk.",
    State.WAITING: "The machine boots; the ramdisk's callback is awaited.",
    State.PROCESSING: "The callback came; hooks work on its data.",
    State.REAPPLYING: "Hooks work on data that was stored before; the machine is not touched.",
    State.ENROLLING: "An unknown machine called back and becomes a node.",
    State.FINISHED: "The inspection succeeded; its results are stored.",
    State.ERROR: "The inspection failed; the reason is on the node and on its timeline.",
}

_INTRODUCTION: Final = """\
# States of an inspection

<!-- Generated from ferroscope.domain.states by ferroscope.domain.diagram: do not edit. -->

One table decides what may happen to a node and what follows from it. The service, this page, the
metrics' labels and the tests are all made from it. A request that the table does not know for the
node's state changes nothing: the API answers 409 with the state and what it does allow, and a request
that was queued already is consumed and recorded on the node's timeline.
"""

_FLAGS: Final = """\
*Automatic*: follows from the state itself, nobody asks for it. *Strict*: the task must not take effect
twice, so that the new state is saved before it runs; otherwise after it.
"""


def render() -> str:
    """Return the page as Markdown, with a final newline."""
    return "\n".join(
        (
            _INTRODUCTION,
            _section("Diagram", ["```mermaid", *_mermaid(), "```", "", *_everywhere()]),
            _section("The states", _states()),
            _section("The transitions", [_FLAGS, *_transitions()]),
            _section("Provision states", _provision()),
            _section("Commands", _commands()),
        )
    )


def _section(title: str, lines: Iterable[str]) -> str:
    return f"## {title}\n\n" + "\n".join(lines) + "\n"


def _mermaid() -> Iterator[str]:
    """Draw one arrow for each pair of states; what leads out of every state is said below instead."""
    yield "stateDiagram-v2"
    yield f"    [*] --> {State.NONE}"
    labels: dict[tuple[State, State], list[str]] = {}
    for row in TRANSITIONS:
        if row.event not in _universal():
            labels.setdefault((row.source, row.target), []).append(_label(row))
    for (source, target), events in labels.items():
        yield f"    {source} --> {target}: {', '.join(events)}"
    for state in State:
        if state in TERMINAL:
            yield f"    {state} --> [*]"


def _label(row: Transition) -> str:
    return f"{row.event}{' !' if row.strict else ''}{' ~' if row.automatic else ''}"


def _universal() -> frozenset[Event]:
    """Return the events that every state takes."""
    sources: dict[Event, set[State]] = {}
    for row in TRANSITIONS:
        sources.setdefault(row.event, set()).add(row.source)
    return frozenset(event for event, states in sources.items() if states == set(State))


def _everywhere() -> Iterator[str]:
    yield "`!` strict, `~` automatic."
    for event in sorted(_universal()):
        targets = sorted({row.target for row in TRANSITIONS if row.event is event})
        yield f"Not drawn: `{event}`, which every state takes, to {', '.join(f'`{target}`' for target in targets)}."


def _states() -> Iterator[str]:
    yield from _table_head("state", "kind", "meaning")
    for state in State:
        kinds = [name for name, states in (("initial", INITIAL), ("terminal", TERMINAL)) if state in states]
        yield _row(f"`{state}`", ", ".join(kinds), _STATES[state])


def _transitions() -> Iterator[str]:
    yield from _table_head("state", "event", "target", "strict", "automatic")
    for row in TRANSITIONS:
        yield _row(f"`{row.source}`", f"`{row.event}`", f"`{row.target}`", _mark(row.strict), _mark(row.automatic))


def _provision() -> Iterator[str]:
    yield "The Bare Metal API shows the same machine under the names that its clients know."
    yield ""
    yield from _table_head("state", "provision state")
    for state in State:
        yield _row(f"`{state}`", f"`{OF_STATE[state]}`" if state in OF_STATE else "as the node rests (see below)")
    yield ""
    names = ", ".join(f"`{state}`" for state in sorted(INSPECTABLE))
    yield f"An inspection may start from {names}. These verbs move a node that is not being inspected:"
    yield ""
    yield from _table_head("verb", "from", "to")
    for verb, moves in RESTING_VERBS.items():
        for source, target in moves.items():
            yield _row(f"`{verb}`", f"`{source}`", f"`{target}`")


def _commands() -> Iterator[str]:
    names = ", ".join(f"`{event}`" for event in sorted(COMMANDS))
    yield f"{names} leave the state as it is. They are refused while an inspection is under way,"
    yield "because that owns the machine."


def _table_head(*titles: str) -> Iterator[str]:
    yield _row(*titles)
    yield _row(*("---" for _title in titles))


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _mark(flag: bool) -> str:
    return "yes" if flag else ""
