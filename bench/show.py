"""How each benchmark's raw numbers are laid out, and which figures it yields."""

from __future__ import annotations

from bench.cycle import BESIDE, Cycle, median_round, median_slice
from bench.figures import Figure
from bench.hot import Profile
from bench.report import Report

_DISTRIBUTIONS = ("callback", "PUT", "whole")


def cycle(report: Report, found: Cycle) -> None:
    """Show a cycle round by round; its figures are the median round's."""
    processes = list(found.rounds[0].cpu)
    columns = ("", "insp/s", *_DISTRIBUTIONS, "CPU ours", *processes, "looks", "strangers")
    rows = [
        (
            str(number),
            round_.rate,
            round_.run.callbacks,
            round_.run.starts,
            round_.run.whole,
            round_.ours,
            *(round_.cpu[name] for name in processes),
            round_.run.looks,
            round_.strangers,
        )
        for number, round_ in enumerate(found.rounds, 1)
    ]
    report.table(columns, rows)
    report.console.print("milliseconds: p50 / p99 / max; CPU per inspection. Slices, inspections/s:", highlight=False)
    for number, round_ in enumerate(found.rounds, 1):
        report.console.print(f"  {number}: {' '.join(f'{rate:.0f}' for rate in round_.run.slices)}", highlight=False)
    memories = ", ".join(f"{name} {held.rss:.0f} ({held.pss:.0f})" for name, held in found.memory.items())
    report.console.print(
        f"enrolled {found.enrolled_per_second:.0f} nodes/s; RSS (PSS) in MB: {memories}", highlight=False
    )
    report.wrong(found.problems)
    report.keep("cycle", found)
    typical = median_round(found.rounds)
    report.found(
        Figure("inspections/s", found.database, typical.rate),
        Figure("inspections/s, median slice", found.database, median_slice(found.rounds)),
        Figure("callback p99, ms", found.database, typical.run.callbacks.p99),
        Figure("CPU per inspection, ms", found.database, typical.ours),
        Figure(f"CPU per inspection of {BESIDE}, ms", found.database, typical.cpu[BESIDE]),
    )


def profile(report: Report, found: Profile, top: int) -> None:
    """Show the functions and statements that cost the most."""
    report.console.print(
        f"{found.role} on {found.database}: {found.cpu:.2f} ms of CPU per inspection, {found.slower:.1f} times that "
        "under the profiler; below, milliseconds and calls per inspection, scaled back",
        highlight=False,
    )
    columns = ("function", "calls", "own", "with what it calls")
    for title, key in (("by own time", "own"), ("by time with what it calls", "whole")):
        report.section(title)
        spots = sorted(found.spots, key=lambda spot: -getattr(spot, key))[:top]
        report.table(columns, [(spot.where, spot.calls, spot.own, spot.whole) for spot in spots])
    report.section("statements, waited in the client under the profiler")
    statements = sorted(found.statements, key=lambda statement: -statement.waited)
    report.table(("statement", "count", "ms"), [(one.text[:110], one.count, one.waited) for one in statements[:top]])
    everything = sum(statement.count for statement in statements)
    report.console.print(f"{everything:.1f} statements per inspection", highlight=False)
    report.keep("profile", found)
