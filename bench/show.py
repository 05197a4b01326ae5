"""How each benchmark's raw numbers are laid out, and which figures it yields."""

from __future__ import annotations

from rich.markup import escape

from bench.cycle import LOAD_PROCESS, Cycle, median_round, median_slice
from bench.figures import Figure
from bench.pages import Pages
from bench.profile import Profile
from bench.reads import Reads
from bench.report import Report
from bench.scale import Scale
from bench.search import Searches

_DISTRIBUTIONS = ("callback", "PUT", "whole")


def cycle(report: Report, found: Cycle) -> None:
    """Show a cycle round by round; its figures are the median round's."""
    processes = list(found.rounds[0].cpu)
    columns = ("", "insp/s", *_DISTRIBUTIONS, "CPU ours", *processes, "relative", "looks", "other load")
    rows = [
        (
            str(number),
            round_.rate,
            round_.run.callbacks,
            round_.run.starts,
            round_.run.whole,
            round_.ours,
            *(round_.cpu[name] for name in processes),
            round_.relative,
            round_.run.looks,
            round_.other_load,
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
        Figure(f"CPU per inspection of {LOAD_PROCESS}, ms", found.database, typical.cpu[LOAD_PROCESS]),
        Figure("KB in the database for each inspection", found.database, found.growth / 1000),
    )
    if found.logged:
        report.found(Figure("KB in the write-ahead log for each inspection", found.database, found.logged / 1000))


def reads(report: Report, found: Reads) -> None:
    """Show reads; their figures are the best number of connections'."""
    rows = [
        (
            read.what,
            read.reading.connections,
            read.reading.rate,
            read.reading.latency,
            read.cpu,
            read.reading.bytes_each / 1000,
        )
        for read in found.reads
    ]
    report.table(("", "connections", "per s", "ms p50 / p99 / max", "CPU ms each", "KB each"), rows)
    report.wrong(found.problems)
    report.keep("reads", found)
    for what in dict.fromkeys(read.what for read in found.reads):
        report.found(Figure(f"{what}/s", found.database, found.best(what)))


def search(report: Report, found: Searches) -> None:
    """Show queries; the figure is the slowest one's."""
    rows = [(escape(asked.query), asked.median, max(asked.milliseconds), asked.found) for asked in found.asked]
    report.table(("query", "ms p50", "ms max", "found (a page)"), rows)
    report.keep("search", found)
    report.found(Figure("search over 10,000 nodes, s", found.database, found.slowest))


def pages(report: Report, found: Pages) -> None:
    """Show pages; the figures are those of the slowest of all, of the first two, of the first, and of viewers."""
    rows = [
        (one.page, one.first, one.median, max(one.others), one.first_cpu, one.cpu, one.size // 1000)
        for one in found.shown
    ]
    report.table(("page", "first ms", "ms p50", "ms max", "first CPU ms", "CPU ms", "kB"), rows)
    watched = [
        (one.page, "every second" if one.changing else "nothing", f"{one.looks} ({one.new})", one.took, one.share * 100)
        for one in found.watched
    ]
    watched.append(("nobody", "nothing", "0", 20.0, found.idle * 100))
    watched.append(("nobody", "every second", "0", 20.0, found.changes * 100))
    columns = (f"{found.viewers} viewers of", "changes", "looks (new)", "in s (20 if idle)", "CPU, % of a core")
    report.table(columns, watched)
    report.keep("pages", found)
    slowest = max(one.median for one in found.shown[:2])
    report.found(Figure("fleet and machines of 10,000, ms", found.database, slowest))
    report.found(Figure("first page of a process, CPU ms", found.database, found.shown[0].first_cpu))
    slowest_cpu = max(one.cpu for one in found.shown if one.page.startswith("/ui"))
    report.found(Figure("slowest page of 10,000, CPU ms", found.database, slowest_cpu))
    report.found(Figure(f"api CPU for {found.viewers} viewers, share of a core", found.database, found.most))


def scale(report: Report, found: Scale) -> None:
    """Show both sizes of registry; the figure is the ratio of CPU per inspection."""
    rows = [(side.enrolled, side.cpu, side.wall, len(side.rounds)) for side in (found.small, found.large)]
    report.table(("nodes enrolled", "CPU ms per inspection", "ms per inspection", "rounds"), rows)
    report.wrong(found.problems)
    report.keep("scale", found)
    report.found(
        Figure("cost with many nodes / with few", f"{found.database}, CPU", found.large.cpu / found.small.cpu),
        Figure("cost with many nodes / with few", f"{found.database}, time", found.large.wall / found.small.wall),
    )


def profile(report: Report, found: Profile, top: int) -> None:
    """Show the functions and statements that cost the most."""
    report.console.print(
        f"{found.role} on {found.database}: {found.cpu:.2f} ms of CPU per inspection, {found.slower:.1f} times that "
        "under the profiler, whose cost is taken off below; milliseconds and calls per inspection",
        highlight=False,
    )
    report.section("by own time of packages")
    packages = sorted(found.by_package().items(), key=lambda item: -item[1])[: top // 2]
    report.table(("package", "ms"), packages)
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
