"""Leaders that trust their lease for too long, or keep it for too long."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from ferroscope import leadership
from ferroscope.contracts.errors import LeaseLostError, StoreError
from ferroscope.db import leases, members
from tests.simulation.bugs.registry import bug

_l = leases._l


@bug(
    "renewal-error-ignored", "a leader whose renewal is refused goes on as if it were granted", rule="leader", seeds=20
)
def _() -> Iterator[Any]:
    def renew(self: Any) -> bool:
        asked_at = self._clock.monotonic()
        with contextlib.suppress(LeaseLostError, StoreError):
            self.claim = self._store.write(lambda tx: tx.leases.renew(self.claim, self._profile.ttl))
        self._trusted_until = leadership.trusted_until(asked_at, self._profile)
        return True

    yield leadership.Leadership, "renew", renew


@bug(
    "renewal-despite-hang",
    "the lease is renewed although the leader's work hangs",
    rule="leader",
    seeds=30,
    faults=("hang", "pause"),
)
def _() -> Iterator[Any]:
    renew = leadership.Leadership.renew

    def stubborn(self: Any) -> bool:
        self.keep_alive()
        return renew(self)

    yield leadership.Leadership, "renew", stubborn


@bug(
    "trust-from-answer",
    "the holder trusts its lease from the answer on, not from the question",
    rule="trust",
    seeds=15,
    faults=("slow network", "partition"),
    mean_between_faults=2.0,
    kind="elections",
)
def _() -> Iterator[Any]:
    campaign, renew = leadership.Election.campaign, leadership.Leadership.renew

    def late_campaign(self: Any) -> Any:
        won = campaign(self)
        if won is not None:
            won._trusted_until = leadership.trusted_until(self._clock.monotonic(), self._profile)
        return won

    def late_renew(self: Any) -> bool:
        done = renew(self)
        if done:
            self._trusted_until = leadership.trusted_until(self._clock.monotonic(), self._profile)
        return done

    yield leadership.Election, "campaign", late_campaign
    yield leadership.Leadership, "renew", late_renew


@bug(
    "no-margin",
    "the holder trusts its lease to its very end, whatever its clock's rate",
    rule="trust",
    seeds=40,
    faults=("partition", "pause", "deaf heart"),
    clock_spread=0.1,
)
def _() -> Iterator[Any]:
    yield leadership, "trusted_until", lambda asked_at, profile: asked_at + profile.ttl


@bug("release-forgotten", "a process that stops keeps its leases", rule="I8", seeds=10)
def _() -> Iterator[Any]:
    def resign(self: Any) -> None:
        self._has_resigned = self._over = True

    yield leadership.Leadership, "resign", resign
    yield members, "_FREE_LEASES", members._FREE_LEASES.where(_l.epoch < 0)
