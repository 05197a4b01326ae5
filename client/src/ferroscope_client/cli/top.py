"""``ferroscope top``: the service live on one screen; the most important part is at the top.

``lines`` is pure: from the data to the lines of a screen of any size. If the service does not answer, a line says so,
and the last data stay, because that is when an operator looks.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import click
import msgspec

from ferroscope_client.cli.lookup import label
from ferroscope_client.cli.output import cloud_option, insecure_option, url_option
from ferroscope_client.cli.screen import Screen, size
from ferroscope_client.cli.text import clean, may_draw, moment, parse, plain_option, short, span, utc_option, width_of
from ferroscope_client.client import Client, Json, connect
from ferroscope_client.core.obstacles import count_slots, search_command
from ferroscope_client.core.states import OF_STATE, UNDER_WAY, Provision, State
from ferroscope_client.core.values import many
from ferroscope_client.errors import Exit, Failure

_KEYS: Final = "qQ"
_ANSWER_SECONDS: Final = 5.0
_FIELDS: Final = ("uuid", "name", "provision_state", "provision_updated_at", "inspection_started_at")
# The minimum number of rows of a section on a screen that is too small for all.
_MIN_ROWS: Final = 2
_GAP: Final = "  "
# Columns for a problem beside its advice.
_LEAST_COLUMNS: Final = 24
_UNCUT_SIZE: Final = (1000, 1000)
# The narrowest usual terminal.
_NARROW_COLUMNS: Final = 80


class Seen(msgspec.Struct, frozen=True):
    """What one look found: the status, and the nodes whose inspections are in progress, the oldest first."""

    status: Json
    active: list[Json]


@click.command(epilog="Press q to quit. Exit code 5, with --once or plain: the service cannot be reached.")
@click.option("--once", is_flag=True, help="Print one screen, for scripts; COLUMNS and LINES set its size.")
@click.option(
    "-n", "--interval", type=click.FloatRange(0.2, 3600), default=2.0, show_default=True, help="Seconds between looks."
)
@url_option
@cloud_option
@insecure_option
@utc_option
@plain_option
def top(once: bool, interval: float, url: str | None, cloud: str | None, insecure_http: bool) -> None:
    """Show the service live on one screen: members, leases, queue, inspections in progress, problems.

    Plain or in a pipe, it is printed once, and not cut.
    """
    api = connect(url, cloud=cloud, insecure_http=insecure_http, patience=0.0, seconds=_ANSWER_SECONDS)
    if once or not may_draw(sys.stdout):
        columns, rows = size() if once else _UNCUT_SIZE
        _print(lines(look(api, rows), columns, rows, api.url))
        return
    _watch(api, interval)


def _print(text_lines: Sequence[str]) -> None:
    click.echo("\n".join(text_lines))


def _watch(api: Client, interval: float) -> None:
    seen, away, since = None, "", 0.0
    with Screen() as screen:
        while True:
            try:
                seen, away = look(api, size()[1]), ""
            except Failure as exc:
                if exc.exit_code != Exit.UNREACHABLE and seen is None:
                    raise  # otherwise it has worked before, and may work again
                since = since if away else time.monotonic()
                away = f"{exc.message}; for {span(time.monotonic() - since)}"
            screen.draw(lines(seen, *size(), api.url, away=away), bold=str.isupper)
            if screen.wait(interval, keys=_KEYS):
                return


def look(api: Client, most: int) -> Seen:
    """Ask the service; ``most``: the number of inspections in progress to read for each state."""
    status: Json = api.get("/v1/status")
    active: list[Json] = []
    for state in UNDER_WAY:
        if status["nodes"].get(state):
            order = {"sort_key": "inspection_started_at", "sort_dir": "asc"}
            active += api.pages("/v1/nodes", "nodes", provision_state=state, fields=_FIELDS, limit=most, **order)
    active.sort(key=lambda node: node["inspection_started_at"] or "")
    return Seen(status, active)


def lines(
    seen: Seen | None, width: int, height: int, url: str, *, away: str = "", now: datetime | None = None
) -> list[str]:
    """Return at most ``height`` lines of at most ``width`` columns."""
    now = now or datetime.now(UTC)
    text_lines = [f"ferroscope {url}  {moment(now)}"]
    if away:
        text_lines.append(away)
    if seen is not None:
        text_lines += _summary(seen.status)
        sections = [
            _problems(seen.status["problems"], width),
            _members(seen.status["members"]),
            _leases(seen.status["leases"]),
            _active(seen, now),
        ]
        text_lines += _fit([rows for rows in sections if len(rows) > 1], height - len(text_lines))
    return [short(clean(line), width) for line in text_lines[:height]]


def _summary(status: Json) -> list[str]:
    nodes, queue = status["nodes"], status["queue"]
    states = _GAP.join(f"{nodes[state]:,} {state}" for state in Provision if nodes.get(state))
    waiting, running = (sum(row[name] for row in queue) for name in ("waiting", "claimed"))
    oldest = max((row["oldest"] for row in queue), default=0.0)
    slots, busy = count_slots(
        lane for member in status["members"] if member["alive"] for lane in member["lanes"].values()
    )
    problems = status["problems"]
    wrong = sum(problem["verdict"] == "wrong" for problem in problems)
    counts = [many(wrong, "problem") if wrong else "none"]
    counts += [many(len(problems) - wrong, "note")] if len(problems) > wrong else []
    return [
        f"Problems  {', '.join(counts)}",
        f"Nodes     {sum(nodes.values()):,}{_GAP}{states}",
        f"Queue     {waiting:,} waiting, {running:,} running, oldest {span(oldest)}; slots: {busy:,} of {slots:,} busy",
    ]


def _problems(problems: Sequence[Json], width: int) -> list[tuple[str, ...]]:
    """Return the problems, cut so that the commands beside them stay complete; lists of machines may be cut."""
    commands = [search_command(problem) for problem in problems]
    most = max(width // 2, _NARROW_COLUMNS - len(_GAP) - _LEAST_COLUMNS)
    commands = [command if width_of(command) <= most else "" for command in commands]
    columns = max(_LEAST_COLUMNS, width - len(_GAP) - max(map(width_of, commands), default=0))
    rows = [
        (short(problem["summary"], columns), command or problem["advice"])
        for problem, command in zip(problems, commands, strict=True)
    ]
    return [("PROBLEM", "WHAT TO DO"), *rows]


def _members(members: Sequence[Json]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("MEMBER", "STATE", "AGE", "HEARTBEAT", "SLOTS")]
    for member in sorted(members, key=lambda member: member["alive"]):
        slots, busy = count_slots(member["lanes"].values())
        silent = "-" if member["silent_for"] is None else f"{member['silent_for']:.1f} s ago"
        state = "alive" if member["alive"] else "DEAD"
        rows.append((member["name"], state, span(member["age"]), silent, f"{busy}/{slots}" if member["lanes"] else "-"))
    return rows


def _leases(leases: Sequence[Json]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("LEASE", "HOLDER", "EPOCH", "EXPIRES IN")]
    for lease in sorted(leases, key=lambda lease: lease["holder"] is not None):
        left = "-" if lease["holder"] is None else f"{lease['remaining']:.1f} s"
        rows.append((lease["name"], lease["holder"] or "NOBODY", str(lease["epoch"]), left))
    return rows


def _active(seen: Seen, now: datetime) -> list[tuple[str, ...]]:
    total = sum(seen.status["nodes"].get(state, 0) for state in UNDER_WAY)
    rows: list[tuple[str, ...]] = [(f"IN PROGRESS ({total:,})", "PHASE", "AGE", "IN PHASE")]
    for node in seen.active:
        ages = [_age(node[name], now) for name in ("inspection_started_at", "provision_updated_at")]
        rows.append((label(node), phase(node), *ages))
    return rows


def phase(node: Json) -> str:
    """Return the phase of an inspection in progress."""
    if node["provision_state"] == OF_STATE[State.WAITING]:
        return str(State.WAITING)
    # The provision state is the same before and after the callback, but it is set again when the data is processed: its
    # time then differs, in whole seconds.
    begins = node["inspection_started_at"] == node["provision_updated_at"]
    return str(State.STARTING if begins else State.PROCESSING)


def _age(text: str | None, now: datetime) -> str:
    then = parse(text)
    return "-" if then is None else span(max(0.0, (now - then).total_seconds()))


def _fit(sections: Sequence[list[tuple[str, ...]]], height: int) -> list[str]:
    """Return the sections in this height: a blank line, titles and rows each; the longest ones are cut first."""
    counts = [len(rows) - 1 for rows in sections]
    room = height - 2 * len(sections)
    while sum(counts) > room and max(counts, default=0) > _MIN_ROWS:
        counts[counts.index(max(counts))] -= 1
    text_lines: list[str] = []
    for rows, count in zip(sections, counts, strict=True):
        left = len(rows) - 1 - count
        text_lines += ["", *_align([*rows[:count], (f"... {left + 1} more",)] if left else rows)]
    return text_lines


def _align(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[at]) for row in rows if at < len(row)) for at in range(len(rows[0]))]
    return [_GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip() for row in rows]
