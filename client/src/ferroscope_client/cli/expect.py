"""``ferroscope expect``: set the expected hardware of machines, and show deviations."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import click
import msgspec

from ferroscope_client.cli.input_files import InputFile, invalid, yaml_of
from ferroscope_client.cli.lookup import label
from ferroscope_client.cli.output import CommandOrBelow, Output, table, with_api, with_api_and_lists
from ferroscope_client.cli.screen import progress
from ferroscope_client.cli.selection import selector_option
from ferroscope_client.client import Client, Json, ServiceError
from ferroscope_client.core import labels
from ferroscope_client.core.expectation import Expectation
from ferroscope_client.core.labels import LabelError
from ferroscope_client.core.values import many, natural
from ferroscope_client.enrollment.printed import yaml_text
from ferroscope_client.errors import Exit, Failure

_MAX_FILE_BYTES: Final = 4 * 1024 * 1024


@click.command(
    cls=CommandOrBelow,
    epilog="Subcommands: 'expect report' shows what deviates, 'expect show' the expectations. Exit code 2: the file is "
    "invalid; nothing was changed.",
)
@click.argument("file", type=InputFile("rb", lazy=True))
@click.option("--dry-run", is_flag=True, help="Only check the file, and show what would change.")
@with_api
def expect(api: Client, out: Output, *, file: Any, dry_run: bool) -> None:
    """Replace the expected hardware with what FILE describes; "-" is standard input.

    FILE is YAML: a list of expectations, each with a name, the nodes that it is about (a selector of labels, and names,
    a pattern), severity (warning or failure) and expect, a list of required queries as for 'search'. All
    inspected machines are checked at once, and each again after its inspections.
    """
    wanted_list = _read(file)
    before = {expectation["name"]: expectation for expectation in api.get("/v1/expectations")["expectations"]}
    wanted = {expectation.name: msgspec.to_builtins(expectation) for expectation in wanted_list}
    changed = {
        "added": [name for name in wanted if name not in before],
        "changed": [name for name in wanted if name in before and wanted[name] != before[name]],
        "removed": [name for name in before if name not in wanted],
    }
    checked = deviating = 0
    try:
        if dry_run:
            _try(api, wanted_list)
        else:
            api.put("/v1/expectations", {"expectations": list(wanted.values())})
    except (LabelError, ServiceError) as exc:
        if isinstance(exc, ServiceError) and exc.exit_code != Exit.USAGE:
            raise
        raise _invalid(file, exc) from None
    if not dry_run:
        checked, deviating = _check(api)
    shown = {**changed, "checked": checked, "deviating": deviating}
    out.show(shown, lambda screen: _draw(screen, changed, dry_run=dry_run))
    if not out.for_programs and not dry_run:
        out.say(f"{many(checked, 'machine')} checked, {deviating} deviating")
        if deviating:
            out.say("next: ferroscope expect report")


def _read(file: Any) -> list[Expectation]:
    loaded = yaml_of(file, _MAX_FILE_BYTES)
    if isinstance(loaded, dict) and loaded.keys() == {"expectations"}:
        loaded = loaded["expectations"]
    try:
        wanted_list = msgspec.convert(loaded or [], list[Expectation])
    except msgspec.ValidationError as exc:
        raise _invalid(file, exc) from None
    twice = [name for name, count in Counter(expectation.name for expectation in wanted_list).items() if count > 1]
    if twice:
        raise _invalid(file, f"several expectations have the name {twice[0][:80]!r}")
    return wanted_list


def _invalid(file: Any, why: object) -> Failure:
    return invalid(f"{file.name} is invalid; nothing was changed: {why}")


def _try(api: Client, wanted_list: list[Expectation]) -> None:
    """Have the service read all queries, and change nothing; ``LabelError``, ``Failure``."""
    for expectation in wanted_list:
        if expectation.nodes.strip():
            labels.selector(expectation.nodes)
        for query in expectation.expect:
            api.get("/v1/search", q=query, limit=1)


def _check(api: Client) -> tuple[int, int]:
    """Have all nodes checked, page by page."""
    checked = deviating = 0
    marker: str | None = None
    with progress("Checking") as advance:
        while True:
            page = api.post("/v1/expectations/check" + (f"?marker={marker}" if marker else ""))
            checked, deviating, marker = checked + page["checked"], deviating + page["deviating"], page["marker"]
            advance(page["checked"])
            if marker is None:
                return checked, deviating


def _draw(screen: Any, changed: dict[str, list[str]], *, dry_run: bool) -> None:
    rows = [(name, f"would be {result}" if dry_run else result) for result, names in changed.items() for name in names]
    screen.print(table(("EXPECTATION", "RESULT"), rows) if rows else "the expectations are as in the file")


@click.command("report", epilog="Exit code 0: nothing deviates. 1: some machines deviate.")
@selector_option
@click.option("--failures", is_flag=True, help="Only deviations that fail an inspection.")
@with_api_and_lists
def report(api: Client, out: Output, *, selector: str | None, failures: bool) -> None:
    """Show the machines whose hardware differs from the expectations, and how."""
    fields = ("uuid", "name", "labels", "deviations")
    nodes: list[Json] = []
    for node in api.pages("/v1/nodes", "nodes", fields=fields, deviating=True, labels=selector):
        kept = [deviation for deviation in node["deviations"] if not failures or deviation["severity"] == "failure"]
        if kept:
            nodes.append({"uuid": node["uuid"], "name": node["name"], "labels": node["labels"], "deviations": kept})
    nodes.sort(key=lambda node: natural(label(node)))
    rows = [
        (label(node), deviation["expectation"], deviation["severity"], deviation["condition"], deviation["found"])
        for node in nodes
        for deviation in node["deviations"]
    ]
    titles = ("NODE", "EXPECTATION", "SEVERITY", "EXPECTED", "FOUND")
    if not out.rows(titles, rows):
        out.show(nodes, lambda screen: screen.print(table(titles, rows)) if rows else None)
    if not out.for_programs:
        out.say(f"{many(len(nodes), 'machine')} not as expected" if nodes else "all inspected machines are as expected")
    if nodes:
        raise click.exceptions.Exit(Exit.FAILURE)


@click.command("show")
@with_api
def show(api: Client, out: Output) -> None:
    """Show the expectations, in the format of FILE."""
    expectations = api.get("/v1/expectations")["expectations"]
    if out.for_programs:
        out.show({"expectations": expectations}, lambda _screen: None)
        return
    text = yaml_text({"expectations": expectations})
    out.show(expectations, lambda screen: screen.print(text.rstrip() if expectations else "nothing is expected"))


expect.below = (report, show)
