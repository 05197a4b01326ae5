"""``lookup``: whether finding a machine's node costs more where 10,000 nodes wait than where 10 do.

The lookup of a callback as the api does it: one transaction that finds the node and locks it. Each kind of evidence
for itself, and a machine that nobody knows; first while few nodes wait, then while many do, on the same database.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
from sqlalchemy import text

from bench.cycle import scratch
from bench.databases import database, opened
from bench.quantiles import middle
from ferroscope.api.baremetal.machine_lookup import look_up
from ferroscope.config.options import DatabaseSettings
from ferroscope.core.lookup import Evidence, Found
from ferroscope.core.model import Node, Port
from ferroscope.core.states import Provision, State
from ferroscope.db.engine import build_engine
from ferroscope.db.store import Store
from ferroscope.db.transaction import Transaction
from tests.support.databases import upgrade

_BATCH: Final = 250


class Machine(msgspec.Struct, frozen=True):
    """What is known of the waiting machine ``number``, and what it says of itself."""

    number: int

    @property
    def uuid(self) -> str:
        return f"11111111-1111-4111-8111-{self.number:012d}"

    @property
    def macs(self) -> tuple[str, str]:
        high, low = divmod(self.number, 256)
        return f"02:fd:00:{high:02x}:{low:02x}:00", f"02:fd:00:{high:02x}:{low:02x}:01"

    @property
    def bmc(self) -> tuple[str, str]:
        high, low = divmod(self.number, 256)
        return f"10.7.{high}.{low}", f"fd00::{self.number:x}"


_KINDS: Final[dict[str, Callable[[Machine], Evidence]]] = {
    "UUID": lambda machine: Evidence(uuid=machine.uuid),
    "MACs": lambda machine: Evidence(macs=machine.macs),
    "BMC addresses": lambda machine: Evidence(bmc_addresses=machine.bmc),
    "all of it": lambda machine: Evidence(uuid=machine.uuid, macs=machine.macs, bmc_addresses=machine.bmc),
    "nothing known": lambda machine: Evidence(
        macs=("02:fc" + machine.macs[0][5:],), bmc_addresses=(f"192.0.2.{machine.number % 250}",)
    ),
}


class Comparison(msgspec.Struct, frozen=True):
    """Milliseconds of a lookup by its kind: where ``small`` nodes wait, and where ``large`` do."""

    database: str
    small: int
    large: int
    few: dict[str, float]
    many: dict[str, float]

    @property
    def ratio(self) -> float:
        """The worst of all kinds."""
        return max(self.many[kind] / self.few[kind] for kind in self.few)


def measure(name: str, directory: Path, *, small: int, large: int, lookups: int) -> Comparison:
    """Compare; ``lookups`` of each kind, one after the other."""
    with scratch(directory) as place, database(name, place) as base:
        upgrade(base.url)
        with opened(base.url) as backend:
            _fill(backend.store, 0, small)
            _analyze(base.url)
            few = _times(backend.store, small, lookups)
            _fill(backend.store, small, large)
            _analyze(base.url)
            many = _times(backend.store, large, lookups)
        return Comparison(base.title, small, large, few, many)


def _fill(store: Store, first: int, last: int) -> None:
    for start in range(first, last, _BATCH):
        machines = [Machine(number) for number in range(start, min(start + _BATCH, last))]

        def work(tx: Transaction, machines: list[Machine] = machines) -> None:
            for machine in machines:
                node = Node(uuid=machine.uuid, driver="fake-hardware", state=State.WAITING)
                tx.nodes.add(msgspec.structs.replace(node, provision_state=Provision.INSPECT_WAIT))
                tx.ports.add(
                    Port(uuid=f"{index}{machine.uuid[1:]}", node=machine.uuid, address=mac)
                    for index, mac in enumerate(machine.macs, 2)
                )
                tx.addresses.set_bmc(machine.uuid, machine.bmc)

        store.write(work)


def _analyze(url: str) -> None:
    """Bring PostgreSQL's statistics up to date, as autovacuum does within a minute: plans are made from them."""
    engine = build_engine(DatabaseSettings(connection=url))
    if engine.dialect.name == "postgresql":
        with engine.connect() as connection:
            connection.execute(text("ANALYZE"))
    engine.dispose()


def _times(store: Store, waiting: int, lookups: int) -> dict[str, float]:
    chance = random.Random(waiting)
    seen: dict[str, list[float]] = {kind: [] for kind in _KINDS}
    for turn in range(lookups + lookups // 10):
        machine = Machine(chance.randrange(waiting))
        for kind, evidence_of in _KINDS.items():
            evidence = evidence_of(machine)
            began = time.perf_counter()
            verdict = store.write(lambda tx, evidence=evidence: look_up(tx, evidence), durable=False)  # type: ignore[misc]
            taken = time.perf_counter() - began
            # A BMC address alone identifies no node that has ports, but searching for it costs the same.
            if isinstance(verdict, Found) != (kind not in ("BMC addresses", "nothing known")):
                raise AssertionError(f"a lookup by {kind} gave {verdict}")
            if turn >= lookups // 10:
                seen[kind].append(taken * 1000)
    return {kind: _quiet(times) for kind, times in seen.items()}


def _quiet(times: list[float]) -> float:
    """Return the median of the quickest tenth of the run: what others do on the machine is not what is asked."""
    size = max(1, len(times) // 10)
    return min(middle(times[first : first + size]) for first in range(0, len(times) - size + 1, size))
