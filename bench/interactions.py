"""``interactions``: how long pages with 10,000 machines are busy with what their reader does, in a real Chromium.

The api and its machines are those of ``pages``. Keys and clicks come through DevTools, which the browser handles as
those of a person; news is what a page does when something has changed while it is open. What counts is the CPU time of
the page's main thread, which is the same while something else runs on the machine. Beside it is the time from the key
or the click until the page is painted, as the browser itself measures it (Event Timing), from 16 ms on.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import click
import msgspec
from rich.markup import escape

from bench.cycle import scratch
from bench.figures import Figure
from bench.pages import fleet
from bench.quantiles import middle
from bench.report import Report
from tests.support.browser import Chromium

_NEWS: Final = "news"
# Page -> what its reader does, in this order: keys to press, texts to type, selectors to click. News comes first, since
# a page of which something is selected waits with it.
STEPS: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    "/ui": ((_NEWS, ""), ("key", "j"), ("key", "k"), ("click", "details > summary"), ("key", "?")),
    "/ui/machines": (
        (_NEWS, ""), ("click", "input[name=node]"), ("click", "#check-all"), ("click", "#check-all"), ("key", "j"),
        ("key", "x"), ("click", "details.chooser > summary"), ("key", "/"), ("type", "mem"),
    ),
    "/ui/machines?reason=timeout": ((_NEWS, ""), ("key", "j"), ("key", "x"), ("click", "#check-all")),
    "/ui/inbox": ((_NEWS, ""), ("click", "input[name=node]"), ("click", "#check-all"), ("key", "j")),
    "/ui/wiring": (("key", "j"), ("key", "/"), ("type", "leaf")),
    "/ui/wiring?switch=leaf0-r0001": (("click", "details > summary"), ("click", "details > summary")),
    "/ui/service": ((_NEWS, ""), ("key", "j")),
}  # fmt: skip
_SIZE: Final = (1440, 900)
_WATCH: Final = """
window.painted = 0;
new PerformanceObserver(list => {
  for (const one of list.getEntries()) window.painted = Math.max(window.painted, one.duration);
}).observe({ type: "event", durationThreshold: 16 });
"""
# Two frames: what the step has changed is laid out and painted then.
_PAINTED: Final = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done))))"
_REFRESH: Final = "main.dataset.tag = ''; refresh(main)"
_CENTER: Final = """
(() => {
  const one = document.querySelector(%s);
  one.scrollIntoView({ block: "nearest" });
  const box = one.getBoundingClientRect();
  return [box.x + box.width / 2, box.y + box.height / 2];
})()
"""


class Step(msgspec.Struct, frozen=True):
    """Milliseconds of the main thread's CPU, and until it is painted, each time; 0: less than 16."""

    page: str
    what: str
    cpu: list[float]
    painted: list[float]


def measure(directory: Path, *, database: str, nodes: int, tries: int) -> list[Step]:
    """Do every step ``tries`` times, each time on a page that was loaded anew."""
    with scratch(directory) as place, fleet(database, place, nodes=nodes) as found:
        browser = Chromium(place / "profile")
        try:
            browser.shape(*_SIZE)
            browser.command("Emulation.setFocusEmulationEnabled", enabled=True)
            browser.command("Performance.enable", timeDomain="threadTicks")
            steps = [Step(page, " ".join(filter(None, step)), [], []) for page, todo in STEPS.items() for step in todo]
            for _ in range(tries):
                measured = iter(steps)
                for page, todo in STEPS.items():
                    browser.go(found.url + page)
                    browser.evaluate(_WATCH)
                    for kind, what in todo:
                        _measure(browser, next(measured), kind, what)
            if browser.complaints:
                raise RuntimeError(f"the browser complains: {browser.complaints[:3]}")
            return steps
        finally:
            browser.close()


def _measure(browser: Chromium, step: Step, kind: str, what: str) -> None:
    browser.evaluate(f"window.painted = 0; {_PAINTED}")
    before = _busy(browser)
    _do(browser, kind, what)
    browser.evaluate(_PAINTED)
    step.cpu.append((_busy(browser) - before) * 1000)
    step.painted.append(float(browser.evaluate("window.painted")))
    browser.evaluate("document.querySelector('dialog[open]')?.close()")


def _busy(browser: Chromium) -> float:
    """Return the CPU seconds of the page's main thread for all its tasks: scripts, styles, layout and painting."""
    found: Any = browser.command("Performance.getMetrics")["metrics"]
    return float(next(one["value"] for one in found if one["name"] == "TaskDuration"))


def _do(browser: Chromium, kind: str, what: str) -> None:
    if kind == _NEWS:
        browser.evaluate(_REFRESH)
    elif kind == "click":
        x, y = browser.evaluate(_CENTER % json.dumps(what))
        for event in ("mousePressed", "mouseReleased"):
            browser.command("Input.dispatchMouseEvent", type=event, x=x, y=y, button="left", clickCount=1)
    else:
        for letter in what:
            for event in ("keyDown", "keyUp"):
                text = letter if event == "keyDown" else ""
                browser.command("Input.dispatchKeyEvent", type=event, key=letter, text=text)


@click.command("interactions")
@click.pass_obj
@click.option("--database", type=click.Choice(["sqlite", "postgresql", "mariadb"]), default="sqlite", show_default=True)
@click.option("--nodes", default=10_000, show_default=True)
@click.option("--tries", default=5, show_default=True)
def command(found: tuple[Report, Path], database: str, nodes: int, tries: int) -> None:
    """Keys, clicks and news on pages with many machines, in Chromium."""
    report, directory = found
    report.section(f"interactions on {database}: {nodes} nodes")
    steps = measure(directory, database=database, nodes=nodes, tries=tries)
    rows = [(one.page, escape(one.what), middle(one.cpu), max(one.cpu), middle(one.painted)) for one in steps]
    report.table(("page", "step", "CPU ms p50", "CPU ms max", "painted after, ms p50"), rows)
    report.keep("interactions", steps)
    slowest = max(middle(one.cpu) for one in steps)
    report.found(Figure("slowest interaction with 10,000 machines, CPU ms", database, slowest))
