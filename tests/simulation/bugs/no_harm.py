"""Controllers of failed nodes that switch a wrong machine, do not listen, do not wait, or do not say a word."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from ferroscope.contrib.kubernetes.failover import (
    case,
    controller,
    machine_list,
    pods,
    proof,
    protection,
    reading,
)
from ferroscope_client.core.bmc_place import Place
from tests.simulation.bugs.registry import bug

_STORY: dict[str, Any] = {"kind": "no-harm", "faults": ()}


@bug(
    "evidence-not-weighed",
    "nobody compares what a BMC says of its machine with what the node reports",
    rule="ready",
    seeds=5,
    story={"failure": "partition", "mistake": "swapped bmcs"},
    **_STORY,
)
def _() -> Iterator[Any]:
    yield proof, "_doubt", _never_in_doubt


def _never_in_doubt(_case: Any, _machine: Any) -> None: ...


@bug(
    "place-is-text",
    "two spellings of one BMC's address are two places",
    rule="ready",
    seeds=5,
    story={"failure": "partition", "mistake": "shared bmc", "spelling": "default port"},
    **_STORY,
)
def _() -> Iterator[Any]:
    def spelled(info: Any, _resolved: Any) -> tuple[Place, ...]:
        return tuple(Place("text", str(value), None) for key, value in info.items() if key.endswith("_address"))

    yield machine_list, "places", spelled
    yield proof, "_doubt", _never_in_doubt


@bug(
    "guard-ends-at-cluster",
    "the machine of another cluster's ready node is not known to be one",
    rule="ready",
    seeds=5,
    story={"failure": "partition", "mistake": "unmeasured annotation", "across": True},
    **_STORY,
)
def _() -> Iterator[Any]:
    yield protection.StoredNodes, "elsewhere", lambda _self, _nodes: []
    yield proof, "_doubt", _never_in_doubt


@bug(
    "liar-believed",
    "a BMC that said off of a machine whose node was ready is believed when it says so again",
    rule="proof",
    seeds=5,
    story={"failure": "partition", "trouble": "stuck off"},
    **_STORY,
)
def _() -> Iterator[Any]:
    yield reading, "distrust", lambda _checked, _machine: ""


@bug(
    "prohibition-read-once",
    "what an operator forbids after the first power-off command does not count",
    rule="last word",
    seeds=5,
    story={
        "failure": "partition", "prohibition": "disable_power_off", "moment": "after a refused command", "lifted": 0.0,
    },
    **_STORY,
)  # fmt: skip
def _() -> Iterator[Any]:
    decide = proof._decide_power_off

    def once(case: Any, record: Any, node: Any, *, repeats: bool) -> Any:
        machine = case.machine(record)
        if repeats and machine is not None:
            return proof._command_off(case, record, machine.title)
        return decide(case, record, node, repeats=repeats)

    yield proof, "_decide_power_off", once


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

    yield proof, "start_dwell", since


@bug(
    "nobody-is-called",
    "people are not called although nothing changes for ten minutes",
    rule="told",
    seeds=5,
    story={"failure": "machine dies", "mistake": "wrong annotation"},
    **_STORY,
)
def _() -> Iterator[Any]:
    yield case.Case, "escalate", lambda _self, decision: decision
    yield controller, "find_problems", lambda _cluster, _records, **_more: ([], {})


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
