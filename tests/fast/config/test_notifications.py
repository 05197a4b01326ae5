"""``[notifications] target``: what is refused at the start, and what a subscription selects."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ferroscope.config.load import ConfigurationError, files_with_secrets, load
from ferroscope.core.notification import EventType, NodeView, Subscription

GOOD = {"name": "cmdb", "url": "https://cmdb.example.com/hook"}

BUS: dict[str, Any] = {"name": "cloud", "url": "rabbit://ferroscope:hunter2@rabbit1/"}


def configured(tmp_path: Path, *targets: Any) -> Path:
    file = tmp_path / "f.conf"
    lines = [f"target = {one if isinstance(one, str) else json.dumps(one)}" for one in targets]
    file.write_text("\n".join(["[notifications]", *lines, ""]))
    return file


def test_targets_are_read_with_their_defaults(tmp_path: Path) -> None:
    file = configured(tmp_path, GOOD, GOOD | {"name": "lab", "events": ["inspection.*"], "nodes": {"owner": "lab-*"}})
    settings = load([str(file)]).notifications
    cmdb, _ = settings.targets()
    assert (cmdb.name, cmdb.timeout, cmdb.connections, cmdb.events) == ("cmdb", 10.0, 4, ())
    assert settings.subscriptions()[1] == Subscription(target="lab", events=("inspection.*",), nodes={"owner": "lab-*"})
    assert files_with_secrets([str(file)]) == [file]


@pytest.mark.parametrize(
    ("targets", "named"),
    [
        (["{"], "[notifications] target"),
        ([{"name": "x"}], "url"),
        ([GOOD | {"urls": "x"}], "urls"),
        ([GOOD | {"name": "a b"}], "name"),
        ([GOOD | {"url": "ftp://cmdb"}], "cmdb: url"),
        ([GOOD | {"url": "https://"}], "cmdb: url"),
        ([GOOD | {"url": "https://u:hunter2@cmdb/"}], "credentials"),
        ([GOOD | {"secret": "hunter2"}], "not the secret itself"),
        ([GOOD | {"events": ["inspection.finish"]}], "inspection.finish"),
        ([GOOD | {"nodes": {"driver_info": "*"}}], "driver_info"),
        ([GOOD | {"timeout": 600}], "timeout"),
        ([BUS | {"url": "rabbit://u:hunter2@h:x/"}], "cloud: url"),
        ([BUS | {"queues": "mirrored"}], "queues"),
        ([BUS | {"topic": "a b"}], "topic"),
        ([BUS | {"secret": "/x"}], "secret"),
        ([GOOD, GOOD], "same name"),
    ],
)
def test_a_wrong_target_is_refused_and_no_secret_is_quoted(tmp_path: Path, targets: list[Any], named: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        load([str(configured(tmp_path, *targets))])
    assert "[notifications] target" in str(error.value)
    assert named in str(error.value)
    assert "hunter2" not in str(error.value)


def test_networks_are_checked(tmp_path: Path) -> None:
    file = tmp_path / "f.conf"
    file.write_text("[notifications]\nnetworks = 10.0.0.1/8\n")
    with pytest.raises(ConfigurationError, match=r"\[notifications\] networks"):
        load([str(file)])


def test_all_patterns_of_a_subscription_have_to_match() -> None:
    node = NodeView(uuid="u", name="rack1-u07", owner="lab-1")
    everything = Subscription(target="t")
    assert everything.wants(EventType.FAILED)
    assert everything.selects(node)
    some = Subscription(target="t", events=("inspection.f*",), nodes={"owner": "lab-*", "name": "rack1-*"})
    assert [kind for kind in EventType if some.wants(kind)] == [EventType.FINISHED, EventType.FAILED]
    assert some.selects(node)
    assert not Subscription(target="t", nodes={"owner": "lab-*", "name": "rack2-*"}).selects(node)
    assert not Subscription(target="t", nodes={"resource_class": "?*"}).selects(node)
