"""Controllers of failed nodes that switch a wrong machine, do not listen, do not wait, or do not say a word."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from ferroscope.contrib.kubernetes.failover import case, controller, machines, pods, proof
from ferroscope.core.remediation import Phase
from tests.simulation.bugs.registry import bug

_STORY: dict[str, Any] = {"kind": "no-harm", "faults": ()}


@bug(
    "twin-not-noticed",
    "that two machines have the same BMC is not noticed, although it is spelled alike",
    rule="ready",
    seeds=5,
    story={"failure": "partition", "mistake": "shared bmc", "spelling": "alike"},
    **_STORY,
)
def _() -> Iterator[Any]:
    yield machines.Inventory, "_twin", lambda _self, _machine: None


@bug(
    "prohibition-read-once",
    "what an operator forbids after the first power-off command does not count",
    rule="last word",
    seeds=5,
    story={
        "failure": "partition", "prohibition": "maintenance", "moment": "after a refused command", "lifted": 0.0,
    },
    **_STORY,
)  # fmt: skip
def _() -> Iterator[Any]:
    guard = case.Case.guard

    def once(self: Any, record: Any, node: Any) -> tuple[str, str]:
        return ("", "") if record.phase is Phase.POWERING_OFF else guard(self, record, node)

    yield case.Case, "guard", once


@bug(
    "dwell-by-silence",
    "the dwell time begins with the silence of the kubelet, not when the cluster marks its node",
    rule="early",
    seeds=5,
    story={"failure": "kubelet hangs"},
    **_STORY,
)
def _() -> Iterator[Any]:
    def since(case: Any, record: Any, _node: Any) -> Any:
        return msgspec.structs.replace(record, failed_at=record.started_at, not_before=record.started_at + 20.0)

    yield proof, "dwelling", since


@bug(
    "nobody-is-called",
    "people are not called although nothing changes for ten minutes",
    rule="told",
    seeds=5,
    story={"failure": "machine dies", "mistake": "wrong annotation"},
    **_STORY,
)
def _() -> Iterator[Any]:
    yield case.Case, "escalated", lambda _self, decision: decision
    yield controller, "_finding", lambda _cluster, _records: None


@bug(
    "no-place-is-found",
    "no node is thought to take the pods of another one",
    rule="waits",
    seeds=5,
    story={"failure": "kubelet hangs"},
    **_STORY,
)
def _() -> Iterator[Any]:
    yield pods.Pod, "fits", lambda _self, _node: False


@bug(
    "cut-in-vain",
    "a machine is powered off although no other node could take its pods",
    rule="in vain",
    seeds=12,
    story={"failure": "partition", "trouble": "nowhere to go"},
    **_STORY,
)
def _() -> Iterator[Any]:
    yield pods.Pod, "fits", lambda _self, _node: True
