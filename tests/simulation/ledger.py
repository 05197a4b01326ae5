"""A periodic task that only writes, under the fence of its lease: for the scenario that is all elections."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ferroscope.core.model import Entry
from ferroscope.db import Store, Transaction
from ferroscope.leadership import Election, StepLeadership
from ferroscope.periodic.singleton import Singleton


class Ledger:
    """A ``PeriodicTask``; each run is one entry."""

    def __init__(self, store: Store, number: int, period: float) -> None:
        self.name = f"periodic/ledger-{number}"
        self.period = period
        self._store = store

    def step(self, leadership: StepLeadership) -> str:
        def work(tx: Transaction) -> None:
            leadership.fence(tx)
            tx.journal.append([Entry(node=self.name, step="entered", message="one more")])

        self._store.write(work)
        return "entered one more"


def instead(build: Callable[..., list[Any]], leases: int, period: float) -> Callable[..., list[Any]]:
    """Return a ``build_singletons`` of so many ledgers, elected and kept like the product's singletons."""

    def build_ledgers(settings: Any, backend: Any, *, clock: Any, stop: Any, member: str, **options: Any) -> list[Any]:
        model = build(settings, backend, clock=clock, stop=stop, member=member, **options)[0]
        profile = settings.lease.numbers()

        def singleton(number: int) -> Singleton:
            build = partial(Ledger, backend.store, number, period)
            election = Election(build().name, member, store=backend.lease_store, clock=clock, profile=profile)
            return Singleton(
                build, election, keep=model._keep, profile=profile, bus=backend.bus, clock=clock, stop=stop
            )

        return [singleton(number) for number in range(leases)]

    return build_ledgers
