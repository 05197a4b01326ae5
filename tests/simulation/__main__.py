"""The simulation from the command line: many seeds, or one with its transcript, with a planted bug or without.

Exits 1 where an invariant is violated. SIGINT and SIGTERM end it with the figures so far.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial

from tests.simulation import report
from tests.simulation.bugs import BUGS, KINDS
from tests.simulation.run import Result, run
from tests.simulation.scenario import Scenario

# A transcript that nobody asked for is cut to its last lines.
_LAST_LINES = 60
_BATCH = 200
_WORDS = {
    "all": "",
    "elections": " --elections",
    "takeovers": " --takeovers 1",
    "filters": " --pxe-filters",
    "failover": " --failover",
    "no-harm": " --no-harm",
}


def main() -> int:
    options = _options()
    kind = _kind(options)
    play = partial(_play, bug=options.bug, kind=kind)
    suffix = (f" --bug {options.bug}" if options.bug else "") + _WORDS[kind]
    if options.seed is not None:
        return _one(play(options.seed, transcript=options.transcript), suffix)
    begun, tally = time.perf_counter(), report.Tally()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        for result in _results(play, options):
            tally.add(result)
            if result.rule is not None:
                print(report.failure(result, suffix), flush=True)
            if tally.seeds % 100 == 0:
                _tell(tally, time.perf_counter() - begun)
            if (result.rule is not None and options.stop) or _enough(options, tally):
                break
    except KeyboardInterrupt:
        print("interrupted; so far:")
    if tally.failed:
        lines = play(tally.failed[0].seed, transcript=True).lines or []
        print(f"\nthe end of seed {tally.failed[0].seed}:\n{report.transcript(lines[-_LAST_LINES:])}\n")
    print(tally.summary(time.perf_counter() - begun))
    return 1 if tally.failed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many seeds to run (%(default)s)")
    parser.add_argument("--first", type=int, default=1, help="the first of them (%(default)s)")
    parser.add_argument("--seed", type=int, help="run this one only")
    parser.add_argument("--transcript", action="store_true", help="with --seed: print everything that happened")
    parser.add_argument("--bug", choices=sorted(BUGS), help="plant this bug")
    parser.add_argument(
        "--elections", action="store_true", help="only leaders and their leases, under faults without end"
    )
    parser.add_argument(
        "--takeovers",
        type=int,
        default=0,
        metavar="N",
        help="elections in which leases change hands all the time, until N did",
    )
    parser.add_argument(
        "--pxe-filters", dest="filters", action="store_true", help="only the PXE filters of two or three hosts"
    )
    parser.add_argument(
        "--failover", action="store_true", help="only the controllers of the failed nodes of a Kubernetes cluster"
    )
    parser.add_argument(
        "--no-harm",
        dest="no-harm",
        action="store_true",
        help="stories of failed nodes: confused machines, operators who forbid it, and what cannot be read",
    )
    parser.add_argument("--hours", type=float, default=0, help="go on for so many simulated hours, whatever --seeds is")
    parser.add_argument("--stop", action="store_true", help="stop at the first violation")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="processes (%(default)s)")
    return parser.parse_args()


def _kind(options: argparse.Namespace) -> str:
    for kind in ("takeovers", "elections", "filters", "failover", "no-harm"):
        if getattr(options, kind):
            return kind
    return BUGS[options.bug].kind if options.bug else "all"


def _enough(options: argparse.Namespace, tally: report.Tally) -> bool:
    takeovers, hours = tally.counted["takeovers"], tally.simulated / 3600
    return 0 < options.takeovers <= takeovers or 0 < options.hours <= hours


def _scenario(seed: int, bug: str | None, kind: str) -> Scenario:
    return KINDS[kind](seed, **(BUGS[bug].focus if bug else {}))


def _play(seed: int, *, bug: str | None, kind: str, transcript: bool = False) -> Result:
    scenario = _scenario(seed, bug, kind)
    return run(scenario, transcript=transcript, bug=BUGS[bug].patch if bug else nullcontext)


def _results(play: partial[Result], options: argparse.Namespace) -> Iterator[Result]:
    """Give the results of the seeds, or of one seed after the other forever where takeovers are counted."""
    with multiprocessing.get_context("fork").Pool(max(1, options.jobs), _as_child) as pool:
        if options.takeovers or options.hours:
            for first in itertools.count(options.first, _BATCH):
                yield from pool.imap_unordered(play, range(first, first + _BATCH), chunksize=4)
        yield from pool.imap_unordered(play, range(options.first, options.first + options.seeds), chunksize=4)


def _as_child() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.freeze()  # what is imported is no rubbish, and need not be looked through after each seed


def _tell(tally: report.Tally, seconds: float) -> None:
    done = f"{tally.seeds} seeds, {tally.counted['takeovers']} takeovers, {tally.simulated / 3600:.1f} h simulated"
    print(f"{done}, {seconds:.0f} s", file=sys.stderr, flush=True)


def _one(result: Result, suffix: str) -> int:
    if result.lines:
        print(report.transcript(result.lines))
    if result.rule is not None:
        print(report.failure(result, suffix))
    else:
        print(f"seed {result.seed}: nothing is violated; {result.simulated:.1f} s simulated in {result.real:.2f} s")
    return 0 if result.rule is None else 1


if __name__ == "__main__":
    sys.exit(main())
