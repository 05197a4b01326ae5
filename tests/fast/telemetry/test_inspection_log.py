"""What the log tells of an inspection: when it begins, when it has ended, why, and how its time was spent."""

from __future__ import annotations

from typing import Any

from structlog.testing import capture_logs

from ferroscope.contracts.telemetry import Moved
from ferroscope.core.model import Inspection
from ferroscope.core.states import Event, Transition
from ferroscope.telemetry import log
from ferroscope_client.core.states import State
from tests.support import examples
from tests.support.rows import each

NODE = examples.node(name="rack1-u07")


def found(source: State, target: State, **fields: Any) -> list[Any]:
    inspection = Inspection(uuid="i-1", node=NODE.uuid, state=target, started_at=100.0, **fields)
    transition = Transition(source=source, event=Event.FINISH, target=target)
    with capture_logs() as lines:
        log.log_transition(Moved(transition, NODE, inspection))
    return lines


def test_one_that_has_finished_says_how_its_time_was_spent() -> None:
    fields = {"waiting_since": 104.0, "processing_since": 164.0, "finished_at": 165.5, "queued": 2.25}
    (line,) = found(State.PROCESSING, State.FINISHED, **fields)
    assert line["log_level"] == "info"
    spent = {name: line[name] for name in ("total", "queue", "starting", "waiting", "processing")}
    assert spent == {"total": 65.5, "queue": 2.25, "starting": 4.0, "waiting": 60.0, "processing": 1.5}


@each(
    ("reason", "event", "level"),
    [
        ("bmc-unreachable", "inspection failed", "warning"),
        ("timeout", "inspection timed out", "warning"),
        ("ramdisk-silent", "inspection timed out", "warning"),
        ("aborted", "inspection aborted", "info"),
    ],
)
def test_one_that_has_failed_says_why_and_where(reason: str, event: str, level: str) -> None:
    (line,) = found(
        State.WAITING, State.ERROR, waiting_since=104.0, finished_at=110.0, reason=reason, error="so it was"
    )
    assert (line["event"], line["log_level"], line["reason"], line["error"]) == (event, level, reason, "so it was")
    assert (line["starting"], line["waiting"]) == (4.0, 6.0)
    assert "processing" not in line


def test_what_lies_in_between_is_on_the_timeline_only() -> None:
    with capture_logs() as lines:
        log.log_transition(Moved(Transition(source=State.STARTING, event=Event.WAIT, target=State.WAITING), NODE))
    assert lines == []
