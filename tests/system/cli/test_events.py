"""``ferroscope events``, on the configuration and the database of a service."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ferroscope.config.load import load
from ferroscope.core.notification import EventType
from ferroscope.db.prepare import ensure_schema
from ferroscope.runtime.backend import open_for_command
from ferroscope_client.cli.main import main
from ferroscope_client.errors import Exit
from tests.support import examples
from tests.support.http_target import HttpTarget

Run = Callable[..., Result]


@pytest.fixture
def consumer() -> Iterator[HttpTarget]:
    with HttpTarget() as server:
        yield server


@pytest.fixture
def run(tmp_path: Path, consumer: HttpTarget) -> Run:
    target = json.dumps({"name": "cmdb", "url": consumer.url})
    file = tmp_path / "f.conf"
    file.write_text(f"[database]\nconnection = sqlite:///{tmp_path}/f.db\n[notifications]\ntarget = {target}\n")
    ensure_schema(load([str(file)]), upgrade=True)

    def command(*words: str, code: int = 0) -> Result:
        result = CliRunner().invoke(main, ["events", *words, "-c", str(file)])
        assert result.exit_code == code, result.output
        return result

    return command


def listed(run: Run, *words: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run("list", "-o", "json", *words).output)["events"]
    return found


def test_a_test_event_is_sent_at_once_and_its_failure_is_an_exit_code(run: Run, consumer: HttpTarget) -> None:
    assert "confirmed" in run("test", "cmdb").output
    ((_, _, body),) = consumer.seen
    assert json.loads(body)["type"] == "ferroscope.test"
    consumer.statuses = [503]
    assert "HTTP 503" in run("test", "cmdb", code=Exit.FAILURE).output
    assert "configured: cmdb" in run("test", "other", code=Exit.FAILURE).output
    assert listed(run) == []


def test_events_are_listed_and_dead_letters_are_delivered_again(run: Run, tmp_path: Path) -> None:
    first, second = examples.node(name="one"), examples.node(name="two")
    with open_for_command(load([str(tmp_path / "f.conf")])) as backend:
        for node in (first, second):
            backend.store.write(lambda tx, node=node: tx.outbox.add(EventType.CREATED, node))  # type: ignore[misc]
        (dead, _) = backend.store.read(lambda tx: tx.outbox.due("cmdb", 10, ()))
        backend.store.write(lambda tx: tx.outbox.failed(dead.id, "HTTP 422", dead=True))
    assert [event["node"] for event in listed(run)] == [second.uuid, first.uuid]
    assert [event["error"] for event in listed(run, "--state", "dead", "--target", "cmdb")] == ["HTTP 422"]
    assert listed(run, "--node", second.uuid)[0]["data"]["node"]["name"] == "two"
    assert "HTTP 422" in run("list").output
    run("redeliver", code=Exit.USAGE)
    run("redeliver", "--dead", dead.event, code=Exit.USAGE)
    assert "0 events" in run("redeliver", "--dead", "--target", "other").output
    assert "1 event " in run("redeliver", "--dead").output
    assert [event["state"] for event in listed(run)] == ["pending", "pending"]
    assert "0 events" in run("redeliver", dead.event).output
