"""``python -m tests.support.fuzz --callbacks N --seed S --database NAME``: mutilated callbacks into a service.

``--odd --requests 50000``: odd requests to every route. ``--inventories 203``: machines with odd inventories.

Exits 1 where any of what must be true at the end is not.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from bench.databases import NAMES, database
from tests.support.fuzz import flatness, machines, odd
from tests.support.fuzz.drill import Plan, drill
from tests.support.speed import slowness


def main() -> int:
    options = _options()
    if options.odd:
        with (
            tempfile.TemporaryDirectory(prefix="ferroscope-odd-", dir=options.directory) as name,
            database(options.database, Path(name)) as base,
        ):
            seen = odd.run(Path(name), base.url, number=options.requests, seed=options.seed)
        print(seen.told(), *seen.faults, sep="\n")
        return 1 if seen.faults else 0
    if options.inventories:
        with (
            tempfile.TemporaryDirectory(prefix="ferroscope-inventories-", dir=options.directory) as name,
            database(options.database, Path(name)) as base,
        ):
            fleet = machines.run(Path(name), base.url, count=options.inventories, seed=options.seed)
        slow = [one for one in fleet.met if one.seconds > machines.SOON * slowness()]
        fleet.faults += [f"machine {one.inventory.number} took {one.seconds:.1f} s" for one in slow]
        print(fleet.told(), *fleet.faults, sep="\n")
        return 1 if fleet.faults else 0
    plan = Plan(callbacks=options.callbacks, seed=options.seed, connections=options.connections, progress=20_000)
    with tempfile.TemporaryDirectory(prefix="ferroscope-fuzz-", dir=options.directory) as name:
        directory = Path(name)
        with database(options.database, directory) as found:
            outcome = drill(plan, directory, found.url)
    found = flatness.trends(outcome.memory, allowed=options.rise)
    outcome.faults += flatness.faults(found)
    print(outcome.told(), flatness.raw(outcome.memory), *(trend.told() for trend in found), *outcome.faults, sep="\n")
    return 1 if outcome.faults else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.support.fuzz", description=__doc__)
    parser.add_argument("--callbacks", type=int, default=20_000, help="how many (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="from which they are made (%(default)s)")
    parser.add_argument("--database", choices=NAMES, default="sqlite")
    parser.add_argument("--connections", type=int, default=8, help="how many at once (%(default)s)")
    parser.add_argument(
        "--rise", type=float, default=1.0, help="MiB by which a process may grow in 100,000 callbacks (%(default)s)"
    )
    parser.add_argument("--directory", default="/var/tmp", help="where database and logs go (%(default)s)")
    parser.add_argument("--odd", action="store_true", help="instead: odd requests to every route")
    parser.add_argument("--requests", type=int, default=0, help="how many odd ones; 0: each with one oddity, once")
    parser.add_argument(
        "--inventories", type=int, default=0, metavar="N", help="instead: so many machines with odd inventories"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
