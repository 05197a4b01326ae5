"""The watch over inspections: exact limits, joining, nodes that vanish; the test plays the worker."""

from __future__ import annotations

import pytest

from ferroscope.core.states import Event
from ferroscope_client.cli.watch import (
    ERROR,
    FINISHED,
    NOT_STARTED,
    REFUSED,
    STILL_RUNNING,
    Watch,
    WatchedNode,
    verdict,
)
from ferroscope_client.client import Client
from ferroscope_client.core.states import State
from ferroscope_client.errors import Exit
from tests.api.service import Service


def enrol(service: Service, count: int) -> list[WatchedNode]:
    return [WatchedNode(service.enrol(name=f"n{number}"), f"n{number}") for number in range(count)]


def end(service: Service, target: WatchedNode) -> None:
    """Carry out the inspection of one node."""
    service.consume()
    for event in (Event.WAIT, Event.CONTINUE, Event.FINISH):
        service.step(target.uuid, event)


def under_way(service: Service, targets: list[WatchedNode]) -> int:
    return sum(service.node(target.uuid).state is State.STARTING for target in targets)


@pytest.mark.parametrize("count", [3, 30])
def test_a_watch_follows_nodes_from_start_to_end(api: Client, service: Service, count: int) -> None:
    targets = enrol(service, count)
    watch = Watch(api, targets)
    assert watch.step() == []
    assert watch.counts() == {"inspecting": count}
    service.consume()
    service.step(targets[0].uuid, Event.WAIT)
    assert watch.step() == []
    assert watch.counts() == {"inspecting": count - 1, "inspect wait": 1}
    end(service, targets[1])
    assert [(ended.node, ended.result) for ended in watch.step()] == [("n1", FINISHED)]
    assert not watch.over


def test_the_limit_is_exact_and_refilled(api: Client, service: Service) -> None:
    targets = enrol(service, 5)
    watch = Watch(api, targets, limit=2)
    watch.step()
    assert (under_way(service, targets), len(watch.waiting), watch.may_start) == (2, 3, False)
    end(service, targets[0])
    watch.step()
    assert (under_way(service, targets), len(watch.waiting)) == (2, 2)
    for target in targets[1:]:
        if service.node(target.uuid).state is State.NONE:
            watch.step()
        end(service, target)
    while not watch.over:
        watch.step()
    assert [ended.result for ended in watch.ended] == [FINISHED] * 5
    assert verdict(watch.ended) is Exit.OK


def test_a_refused_start_ends_at_once_with_the_reason(api: Client, service: Service) -> None:
    targets = enrol(service, 1)
    service.wait(targets[0].uuid)
    watch = Watch(api, targets)
    (ended,) = watch.step()
    assert (ended.result, ended.code) == (REFUSED, Exit.CONFLICT)
    assert ended.error is not None
    assert "allowed now: abort" in ended.error
    assert watch.over


def test_joining_follows_what_is_under_way_and_starts_nothing(api: Client, service: Service) -> None:
    targets = enrol(service, 3)
    service.wait(targets[0].uuid)
    service.inspect(targets[1].uuid)
    watch = Watch(api, targets, join=True, limit=1)
    watch.step()
    service.step(targets[0].uuid, Event.CONTINUE)
    service.step(targets[0].uuid, Event.FINISH)
    while not watch.over:
        watch.step()
    assert {ended.node: (ended.result, ended.code) for ended in watch.ended} == {
        "n0": (FINISHED, Exit.OK),
        "n1": (FINISHED, Exit.OK),
        "n2": (REFUSED, Exit.CONFLICT),
    }
    assert under_way(service, targets) == 0


def test_a_node_that_is_deleted_meanwhile_ends_in_error(api: Client, service: Service) -> None:
    targets = enrol(service, 1)
    watch = Watch(api, targets)
    watch.step()
    service.store.write(lambda tx: tx.nodes.remove(targets[0].uuid))
    (ended,) = watch.step()
    assert (ended.result, ended.error) == (ERROR, "the node was deleted")


def test_giving_up_tells_started_from_not_started(api: Client, service: Service) -> None:
    watch = Watch(api, enrol(service, 2), limit=1)
    watch.step()
    watch.give_up()
    assert [(ended.result, ended.error) for ended in watch.ended] == [
        (STILL_RUNNING, "still inspecting"),
        (NOT_STARTED, None),
    ]
    assert watch.over
    assert verdict(watch.ended) is Exit.TIMED_OUT


def test_many_starts_are_spread_over_steps_so_that_progress_can_be_shown(api: Client, service: Service) -> None:
    watch = Watch(api, enrol(service, 60))
    watch.step()
    assert (len(watch.active), watch.may_start) == (50, True)
    watch.step()
    assert len(watch.active) == 60
