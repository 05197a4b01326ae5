"""A node's timeline on the screen: each step with its time, who took it, and what to do about failures."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from ferroscope.cli.client import Api, Json, node_path
from ferroscope.cli.exits import Exit, Failure
from ferroscope.cli.listing import Listing
from ferroscope.cli.output import console
from ferroscope.cli.text import clean, with_reason
from ferroscope.cli.times import parse
from ferroscope.core.states import TERMINAL

if TYPE_CHECKING:
    from rich.console import Console

_LOOK_EVERY: Final = 0.5


def fetch(api: Api, uuid: str, *, newest_only: bool) -> Json:
    """Return the timeline as the API has it: inspections, newest first, and steps that belong to none."""
    if newest_only:
        return api.get(node_path(uuid, "timeline"), limit=1)
    story = api.get(node_path(uuid, "timeline"))
    page = story
    while page.get("next"):
        page = api.get(node_path(uuid, "timeline"), marker=page["inspections"][-1]["uuid"])
        story["inspections"] += page["inspections"]
    story.pop("next", None)
    return story


def draw(screen: Console, story: Json) -> None:
    """Print the inspections, oldest first, and what belongs to none."""
    for number, inspection in enumerate(reversed(story["inspections"])):
        if number:
            screen.print()
        _inspection(screen, inspection)
    if story["entries"]:
        screen.print("\noutside of inspections" if story["inspections"] else "outside of inspections", style="bold")
        screen.print(_listing("AT", [_row(step, step["at"]) for step in story["entries"]]))
    if not story["inspections"] and not story["entries"]:
        screen.print("nothing has happened to this node yet")


def watch(api: Api, uuid: str) -> None:
    """Print each step of the newest inspection as it comes, until that is over."""
    screen, told = console(), 0
    while True:
        found = fetch(api, uuid, newest_only=True)["inspections"]
        if not found:
            raise Failure("this node was never inspected", exit_code=Exit.NOT_FOUND)
        newest = found[0]
        for step in newest["entries"][told:]:
            after = _offset(step["at"], newest)
            screen.print(
                clean(f"{after:>10}  {step['step']:<15}  {with_reason(step['message'], step['reason'])}"),
                soft_wrap=True,
            )
        told = len(newest["entries"])
        if newest["state"] in TERMINAL:
            screen.print(newest["hint"] or f"the inspection is {newest['state']}")
            return
        time.sleep(_LOOK_EVERY)


def _inspection(screen: Console, inspection: Json) -> None:
    ended = f" after {_offset(inspection['finished_at'], inspection)}" if inspection["finished_at"] else ""
    screen.print(f"inspection of {inspection['started_at']}: {inspection['state']}{ended}", style="bold")
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
