"""Display of a node's timeline: each step with its time, process and error; and ``ferroscope node log``."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from ferroscope_client.cli.lookup import Listing, find, label, node_argument
from ferroscope_client.cli.output import Output, console, with_api
from ferroscope_client.cli.text import clean, moment, parse, with_reason
from ferroscope_client.client import Client, Json, ServiceError, node_path
from ferroscope_client.core.private_file import open_private
from ferroscope_client.core.states import TERMINAL
from ferroscope_client.errors import Exit, Failure

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


_POLL_SECONDS: Final = 0.5


def fetch(api: Client, uuid: str, *, newest_only: bool) -> Json:
    """Return the timeline from the API: inspections, newest first, and steps outside inspections."""
    if newest_only:
        return api.get(node_path(uuid, "timeline"), limit=1)
    timeline = api.get(node_path(uuid, "timeline"))
    page = timeline
    while page.get("next"):
        page = api.get(node_path(uuid, "timeline"), marker=page["inspections"][-1]["uuid"])
        timeline["inspections"] += page["inspections"]
    timeline.pop("next", None)
    return timeline


def draw(screen: Console, timeline: Json) -> None:
    """Print the inspections, oldest first, and the steps outside inspections."""
    for number, inspection in enumerate(reversed(timeline["inspections"])):
        if number:
            screen.print()
        _inspection(screen, inspection)
    if timeline["entries"]:
        screen.print("\noutside inspections" if timeline["inspections"] else "outside inspections", style="bold")
        screen.print(_listing("AT", [_row(step, moment(step["at"])) for step in timeline["entries"]]))
    if not timeline["inspections"] and not timeline["entries"]:
        screen.print("the timeline is empty")


def watch(api: Client, uuid: str) -> None:
    """Print each step of the newest inspection as it happens, until the inspection ends."""
    screen, shown = console(), 0
    while True:
        inspections = fetch(api, uuid, newest_only=True)["inspections"]
        if not inspections:
            raise Failure("the node has never been inspected", exit_code=Exit.NOT_FOUND)
        newest = inspections[0]
        for step in newest["entries"][shown:]:
            after = _offset(step["at"], newest)
            screen.print(
                clean(f"{after:>10}  {step['step']:<15}  {with_reason(step['message'], step['reason'])}"),
                soft_wrap=True,
            )
        shown = len(newest["entries"])
        if newest["state"] in TERMINAL:
            screen.print(newest["hint"] or f"the inspection is {newest['state']}")
            return
        time.sleep(_POLL_SECONDS)


def _inspection(screen: Console, inspection: Json) -> None:
    ended = f" after {_offset(inspection['finished_at'], inspection)}" if inspection["finished_at"] else ""
    screen.print(f"inspection of {moment(inspection['started_at'])}: {inspection['state']}{ended}", style="bold")
    rows = [_row(step, _offset(step["at"], inspection)) for step in inspection["entries"]]
    screen.print(_listing("AFTER", rows))
    if inspection["reason"]:
        screen.print(clean(f"why: {with_reason(inspection['error'], inspection['reason'])}"), style="red")
        screen.print(f"     {inspection['hint'] or ''}")


def _listing(at: str, rows: list[tuple[Any, ...]]) -> Listing:
    return Listing((at, "STEP", "WHAT", "BY"), rows, spare=("BY", "WHAT"), wraps="WHAT", below="WHAT")


def _row(step: Json, at: Any) -> tuple[Any, ...]:
    from rich.text import Text

    style = {"ERROR": "bold red", "WARNING": "yellow"}.get(step["severity"], "")
    return at, Text(clean(step["step"]), style=style), with_reason(step["message"], step["reason"]), step["process"]


def _offset(at: str | None, inspection: Json) -> str:
    began, then = parse(inspection["started_at"]), parse(at)
    return f"{max(0.0, (then - began).total_seconds()):.2f} s" if began and then else ""


# ``ferroscope node log``: the ramdisk's log, extracted from the archive that it sent.
#
# The archive is untrusted: names in it are never used as file names, and only a few megabytes are unpacked.

_MAX_UNPACKED_BYTES: Final = 32 * 1024 * 1024


@click.command("log")
@node_argument
@click.option("--inspection", metavar="UUID", help="The inspection; by default the newest one with a log.")
@click.option("--file", "name", metavar="NAME", help="Only files in the archive whose name ends with NAME.")
@click.option("--save", type=click.Path(dir_okay=False, path_type=Path), help="Write the archive to a file.")
@with_api
def log(api: Client, out: Output, *, ident: str, inspection: str | None, name: str | None, save: Path | None) -> None:
    """Show the ramdisk's log of an inspection, including failed ones."""
    node = find(api, ident)
    try:
        content = api.fetch(node_path(node["uuid"], "log"), inspection=inspection)
    except ServiceError as exc:
        if exc.status != 404:
            raise
        raise Failure(f"{label(node)} has no log: {exc.message}", exit_code=Exit.NOT_FOUND) from None
    if save is not None:
        try:
            with open_private(save, "wb") as file:
                file.write(content)
        except OSError as exc:
            raise Failure(f"cannot write {save}: {exc.strerror}") from None
        out.say(f"saved to {save}")
        return
    files = [(file_name, text) for file_name, text in _files(content) if name is None or file_name.endswith(name)]
    out.show([{"name": file_name, "text": text} for file_name, text in files], lambda screen: _draw(screen, files))
    if not files:
        out.say("no matching files in the log")


def _files(content: bytes) -> Iterator[tuple[str, str]]:
    """Yield the names and texts of the files in the archive; if it is not an archive, the text itself."""
    import io
    import tarfile
    import zlib

    left = _MAX_UNPACKED_BYTES
    try:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r|*") as archive:
            for member in archive:
                left -= member.size
                if left < 0:
                    yield member.name, f"(truncated: more than {_MAX_UNPACKED_BYTES} bytes)"
                    return
                if member.isfile() and (file := archive.extractfile(member)) is not None:
                    yield member.name, file.read().decode(errors="replace")
    except (tarfile.TarError, EOFError, OSError, zlib.error):
        if left == _MAX_UNPACKED_BYTES:
            yield "log", content.decode(errors="replace")


def _draw(screen: Any, files: list[tuple[str, str]]) -> None:
    for file_name, text in files:
        screen.print(clean(file_name), style="bold")
        for line in text.splitlines():
            screen.print(clean(line), soft_wrap=True, highlight=False, markup=False)


_FOLLOW_SECONDS: Final = 1.0
# Seconds for which the service may be away.
_RETRY_SECONDS: Final = 60.0
DELETED: Final = "deleted"

Fetch = Callable[[], list[Json]]


def follow(out: Output, fetch: Fetch, drawn: Callable[[list[Json]], RenderableType]) -> NoReturn:
    """Show what ``fetch`` returns; ``drawn`` makes a table of it."""
    screen = console()
    if out.for_programs or not screen.is_terminal:
        _print_changes(out, fetch)
    from rich.live import Live

    with Live(drawn(fetch()), console=screen, auto_refresh=False, vertical_overflow="ellipsis") as live:
        while True:
            time.sleep(_FOLLOW_SECONDS)
            live.update(drawn(_patiently(fetch)), refresh=True)


def _print_changes(out: Output, fetch: Fetch) -> NoReturn:
    before: dict[str, Json] = {}
    while True:
        current = {node["uuid"]: node for node in _patiently(fetch)}
        for uuid, node in current.items():
            if before.get(uuid) != node:
                _print(out, node)
        for uuid in before.keys() - current.keys():
            _print(out, before[uuid] | {"provision_state": DELETED})
        before = current
        time.sleep(_FOLLOW_SECONDS)


def _print(out: Output, node: Json) -> None:
    words = (moment(datetime.now(UTC)), label(node), node.get("provision_state"), node.get("last_error"))
    line = "  ".join(str(word) for word in words if word)
    out.show(node, lambda _screen: click.echo(clean(line)))


def _patiently(fetch: Fetch) -> list[Json]:
    """Return the nodes; while the service is unreachable, retry for a minute."""
    until = time.monotonic() + _RETRY_SECONDS
    while True:
        try:
            return fetch()
        except Failure as exc:
            if exc.exit_code != Exit.UNREACHABLE or time.monotonic() > until:
                raise
        time.sleep(_FOLLOW_SECONDS)
