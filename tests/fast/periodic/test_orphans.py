"""Nodes that a registry no longer lists: when they are orphans, and when these are deleted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ferroscope.config.options import RegistrySettings
from ferroscope.contracts.remote import IronicUnavailableError
from ferroscope.contracts.store import Query
from ferroscope.core.model import Node
from ferroscope.core.states import Event
from ferroscope.periodic.orphans import Orphans
from ferroscope_client.core.states import State
from tests.fast.periodic.members import DAY, Members, enrolled
from tests.support import examples
from tests.support.rows import each


class Source:
    """A registry that says what the test tells it to."""

    def __init__(self, *answers: Iterable[str] | None) -> None:
        self._answers = list(answers)

    def list_tracked_uuids(self) -> frozenset[str]:
        answer = self._answers.pop(0)
        if answer is None:
            raise IronicUnavailableError("it is away")
        return frozenset(answer)


def deletions(members: Members, uuid: str) -> int:
    requests = members.store.read(lambda tx: tx.requests.pending(uuid))
    return sum(request.event is Event.DELETE for request in requests)


def sync_of(members: Members, *answers: Iterable[str] | None, **settings: float) -> Orphans:
    return Orphans(members.store, Source(*answers), settings=RegistrySettings(**settings), process="p")


def orphans(members: Members) -> set[str]:
    return {uuid for uuid, since in members.store.read(lambda tx: tx.nodes.orphans()).items() if since is not None}


FLEET = [f"11111111-1111-4111-8111-{number:012d}" for number in range(10)]


def test_a_node_that_is_missing_is_an_orphan_for_days_before_it_gets_one_delete_request() -> None:
    members = Members()
    enrolled(members, *FLEET)
    sync = sync_of(members, *[FLEET[1:]] * 4)
    sync.step(examples.UNLED)
    assert orphans(members) == {FLEET[0]}
    members.clock.now += 2.9 * DAY
    sync.step(examples.UNLED)
    assert deletions(members, FLEET[0]) == 0
    members.clock.now += 0.2 * DAY
    sync.step(examples.UNLED)
    sync.step(examples.UNLED)
    assert [deletions(members, uuid) for uuid in FLEET] == [1] + [0] * 9
    assert sync.problem is None


def test_an_orphan_that_is_tracked_again_is_none_any_more_and_its_timeline_says_so() -> None:
    members = Members()
    enrolled(members, *FLEET)
    sync = sync_of(members, FLEET[1:], FLEET, FLEET[1:])
    sync.step(examples.UNLED)
    members.clock.now += 4 * DAY
    sync.step(examples.UNLED)
    assert orphans(members) == set()
    sync.step(examples.UNLED)
    assert deletions(members, FLEET[0]) == 0
    steps = members.store.read(lambda tx: tx.journal.list(Query(filters={"node": FLEET[0]}, sort_key="id")))
    assert [step.reason for step in steps] == ["not-tracked", None, "not-tracked"]


@each(
    "fields",
    [{"attributes": {"protected": True}}, {"instance_uuid": examples.uuid()}, {"state": State.WAITING}],
)
def test_an_orphan_that_somebody_needs_is_never_deleted(fields: dict[str, Any]) -> None:
    members = Members()
    enrolled(members, *FLEET[1:])
    members.store.write(lambda tx: tx.nodes.add(Node(uuid=FLEET[0], driver="fake", **fields)))
    sync = sync_of(members, *[FLEET[1:]] * 3)
    for _ in range(3):
        sync.step(examples.UNLED)
        members.clock.now += 4 * DAY
    assert orphans(members) == {FLEET[0]}
    assert deletions(members, FLEET[0]) == 0


@each(
    ("answer", "code"),
    [
        ([], "registry-empty"),
        (FLEET[2:], "registry-short"),
        (["somebody else's"], "registry-short"),
        (None, "registry-unavailable"),
    ],
)
def test_a_list_that_lacks_too_much_changes_nothing_and_is_reported(answer: list[str] | None, code: str) -> None:
    members = Members()
    enrolled(members, *FLEET)
    sync = sync_of(members, *[answer] * 3, FLEET)
    for _ in range(3):
        sync.step(examples.UNLED)
        members.clock.now += 4 * DAY
    assert sync.problem is not None
    assert sync.problem.code == code
    assert orphans(members) == set()
    assert sum(deletions(members, uuid) for uuid in FLEET) == 0
    sync.step(examples.UNLED)
    assert sync.problem is None


def test_how_much_may_be_missing_and_for_how_long_is_for_the_operator_to_say() -> None:
    members = Members()
    enrolled(members, *FLEET)
    sync = sync_of(members, *[FLEET[5:]] * 2, max_missing=0.5, delete_after=0.0)
    sync.step(examples.UNLED)
    assert orphans(members) == set(FLEET[:5])
    members.clock.now += 400 * DAY
    sync.step(examples.UNLED)
    assert sum(deletions(members, uuid) for uuid in FLEET) == 0
