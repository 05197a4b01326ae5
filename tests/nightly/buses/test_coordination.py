"""etcd, ZooKeeper and Redis: a dead leader is replaced early, a frozen one writes nothing, an outage costs nothing.

Leases last a minute here, so whoever takes one over sooner has relied on the service.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.support import databases
from tests.support.cluster.coordination_chaos import storm
from tests.support.cluster.party import Party
from tests.support.installation import Played
from tests.support.processes import until
from tests.support.servers import Server

OPTIONS = """
[lease]
profile = custom
ttl = 60
[database]
statement_timeout = 2
"""
UNAVAILABLE = "coordination-unavailable"


OTHERS = ("zookeeper", "redis")


@pytest.fixture(params=["etcd", *OTHERS])
def service(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    """Give a coordination service that may be harmed."""
    server = Server(request.param, f"{request.param}-{tmp_path.name}")
    yield server
    server.discard()


@pytest.fixture
def other_postgresql_url(shared_postgresql: Server) -> Iterator[str]:
    """Give the URL of one more database, for a party without a service."""
    with databases.fresh(shared_postgresql) as url:
        yield url


def test_leaders_are_replaced_early_and_an_outage_of_the_service_is_survived_and_reported(
    service: Server, postgresql_url: str, tmp_path: Path
) -> None:
    with Party(tmp_path, postgresql_url, OPTIONS, service=service) as party:
        # Killed: its successor does not wait for the lease to expire.
        leader, epoch = party.wait_led()
        assert until(lambda: party.all_see(2))
        leader.kill()
        leader, epoch = party.wait_led(after=epoch)
        assert party.logged("lease taken over from a lost member")
        party.revive()

        # Frozen for longer than its session: there is a successor, and what the old leader still wants to write is not
        # written. It learns at once that it does not lead.
        assert until(lambda: party.all_see(2))
        old = leader
        old.freeze()
        leader, epoch = party.wait_led(after=epoch)
        assert leader is not old
        written = party.trail().rows
        old.thaw()
        assert until(partial(_has_lost, old))
        assert until(lambda: party.trail().rows > written)

        # The service dies: the leader goes on, everybody says so, and a successor is found without the service.
        service.kill()
        assert until(lambda: all(UNAVAILABLE in party.problems(one) for one in party.candidates))
        written = party.trail().rows
        assert until(lambda: party.trail().rows > written)
        assert party.leader() == (leader, epoch)
        assert leader.stop() == 0
        party.wait_led(after=epoch)
        party.revive()

        # It comes back, perhaps without its data, and is used again.
        service.start()
        assert until(lambda: party.all_see(2))
        assert not any(UNAVAILABLE in party.problems(one) for one in party.candidates)
        trail = party.trail()
    assert (trail.stale, trail.doubled) == (0, 0)
    assert trail.epochs >= 4


def test_nothing_is_stale_or_doubled_in_a_storm(
    service: Server, postgresql_url: str, other_postgresql_url: str, tmp_path: Path
) -> None:
    urls = (postgresql_url, other_postgresql_url)
    outcome = storm(tmp_path, urls, service, seconds=60, seed=1, candidates=2)
    print("\n".join(outcome.lines()))
    assert [(trail.stale, trail.doubled) for trail in outcome.trails.values()] == [(0, 0), (0, 0)]
    assert outcome.early > 0


@pytest.mark.parametrize("service", ["redis"], indirect=True)
def test_without_the_fence_a_leader_that_was_frozen_leaves_a_stale_write(
    service: Server, postgresql_url: str, tmp_path: Path
) -> None:
    with Party(tmp_path, postgresql_url, OPTIONS, service=service, unfenced=True) as party:
        for _ in range(5):  # its renewal may be faster than its next write
            assert until(lambda: party.all_see(2))
            leader, epoch = party.wait_led()
            leader.freeze()
            party.wait_led(after=epoch)
            leader.thaw()
            assert until(partial(_has_lost, leader))
            if party.trail().stale:
                return
    pytest.fail("no stale write was seen")


def _has_lost(leader: Played) -> bool:
    return "leadership lost" in leader.output()
