"""``ferroscope inventory``: show, save and compare inventories; ``ferroscope search``: find nodes by their hardware."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import quote, urlencode

import click
import msgspec

from ferroscope_client.cli import lookup
from ferroscope_client.cli.input_files import InputFile, invalid, yaml_of
from ferroscope_client.cli.lookup import find, label, node_argument
from ferroscope_client.cli.node import columns
from ferroscope_client.cli.output import Group, Output, table, with_api, with_api_and_lists
from ferroscope_client.cli.selection import selector_option
from ferroscope_client.cli.text import ago
from ferroscope_client.client import Client, Json, ServiceError, node_path
from ferroscope_client.core import values
from ferroscope_client.core.values import many, natural
from ferroscope_client.errors import Exit, Failure
from ferroscope_client.hardware import names

_NUMBER: Final = re.compile(r"-?[0-9]+\Z", re.ASCII)
_REVISION = "REV is the UUID of an inspection, or a number: 1 is the oldest, -1 the newest."


@click.group(cls=Group)
def inventory() -> None:
    """Show, save and compare hardware inventories."""


def _revision_option(function: Any) -> Any:
    return click.option("--revision", metavar="REV", help=f"The revision; by default the newest. {_REVISION}")(function)


@inventory.command("list")
@node_argument
@with_api
def list_revisions(api: Client, out: Output, *, ident: str) -> None:
    """List the inspections of a node whose inventories are kept."""
    revisions = api.get(node_path(find(api, ident)["uuid"], "inventory", "revisions"))["revisions"]
    rows = [
        (stored["number"], stored["inspection"], stored["state"], ago(stored["finished_at"]), stored["stored_in"])
        for stored in revisions
    ]
    out.show(revisions, lambda screen: screen.print(table(("REV", "INSPECTION", "STATE", "ENDED", "STORED IN"), rows)))
    if not revisions:
        out.say("the node has no inventory")


@inventory.command()
@node_argument
@_revision_option
@with_api
def show(api: Client, out: Output, *, ident: str, revision: str | None) -> None:
    """Show the inventory: a summary, or with -o json everything."""
    stored = lookup.fetch(api, find(api, ident), revision)
    out.show(stored, lambda screen: columns.draw(screen, stored["inventory"]))


@inventory.command()
@node_argument
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@_revision_option
@with_api
def save(api: Client, out: Output, *, ident: str, file: Path, revision: str | None) -> None:
    """Write inventory and plugin data to FILE, as JSON; 'ferroscope inspect reapply --data' reads it."""
    lookup.save(lookup.fetch(api, find(api, ident), revision), file, out)


@inventory.command(
    epilog=f"{_REVISION} Exit code 0: no differences. 1: differences. 3: no such node or revision.",
)
@node_argument
@click.argument("before", metavar="[REV|NODE", required=False)
@click.argument("after", metavar="REV]", required=False)
@click.option("--revision", metavar="REV", help="With two nodes: the revision of the first; by default the newest.")
@click.option(
    "--other-revision", metavar="REV", help="With two nodes: the revision of the second; by default the newest."
)
@with_api
def diff(
    api: Client,
    out: Output,
    *,
    ident: str,
    before: str | None,
    after: str | None,
    revision: str | None,
    other_revision: str | None,
) -> None:
    """Compare two inventories of a node, by default the two newest, or the inventories of two nodes.

    Write -- before negative numbers.
    """
    node = find(api, ident)
    other_node = before if before is not None and after is None and not _is_revision(api, node, before) else None
    if other_node is not None:
        query = {"other": find(api, other_node)["uuid"], "before": revision or "-1", "after": other_revision or "-1"}
    elif revision or other_revision:
        raise click.UsageError("--revision and --other-revision are for two nodes: ferroscope inventory diff NODE NODE")
    else:
        query = {"before": before or "-2", "after": after or "-1"}
    comparison = api.get(node_path(node["uuid"], "inventory", "diff"), **query)
    changes = comparison["changes"]
    out.show(comparison, lambda screen: _draw(screen, comparison))
    raise click.exceptions.Exit(Exit.FAILURE if changes else Exit.OK)


def _is_revision(api: Client, node: Json, text: str) -> bool:
    """Return whether this is one of the node's revisions, not another node."""
    if _NUMBER.match(text):
        return True
    if not values.is_uuid(text):
        return False
    revisions = api.get(node_path(node["uuid"], "inventory", "revisions"))["revisions"]
    return text.lower() in [stored["inspection"] for stored in revisions]


def _draw(screen: Any, comparison: Json) -> None:
    signs = {"added": "+", "removed": "-", "changed": "~", "replaced": "!"}
    for change in comparison["changes"]:
        screen.print(f"{signs[change['what']]} {change['text']}")
    if not comparison["changes"]:
        screen.print("no differences")


# ``ferroscope search``

_SEARCH_TITLES: Final = frozenset(
    {
        "NAME",
        "STATE",
        "MAINT",
        "MODEL",
        "SERIAL",
        "CPUS",
        "MEMORY",
        "DISKS",
        "VENDOR",
        "CPU",
        "GPUS",
        "NICS",
        "FIRMWARE",
        "UUID",
    }
)
_SEARCH_COLUMNS: Final = tuple(column for column in columns.NODES if column.title in _SEARCH_TITLES)
_SEARCH_SPARE: Final = ("MAINT", "DISKS", "CPUS", "STATE", "MEMORY", "SERIAL", "MODEL")


@click.command(
    epilog="Examples: 'memory_gb >= 512 and nic.speed >= 25G', 'nic[speed >= 25G and vendor == mellanox]', "
    "'count(disk[type == nvme]) >= 4 and not has gpu', 'state == available and product ~ \"*r740*\"', 9YPX7M2. "
    "Exit code 0: nodes found. 1: no matching nodes. 2: invalid query."
)
@click.argument("query", nargs=-1)
@click.option("--limit", type=click.IntRange(min=1), help="Maximum number of nodes.")
@click.option("--fields", "explain", is_flag=True, help="List the fields that queries can use.")
@click.option("-v", "--verbose", is_flag=True, help="Also show the URLs of this search: of the web page and the API.")
@click.option("--saved", metavar="NAME", help="Run the search that you saved under this name, here or on the web page.")
@click.option("--save", metavar="NAME", help="Save QUERY under this name.")
@with_api_and_lists
def search(
    api: Client,
    out: Output,
    *,
    query: tuple[str, ...],
    limit: int | None,
    explain: bool,
    verbose: bool,
    saved: str | None,
    save: str | None,
) -> None:
    """Find nodes that match QUERY, by their last inventory and other fields.

    A condition is a FIELD, an operator (==, !=, <, <=, >, >=, ~ with * and ?, in) and a value with a unit;
    conditions are combined by and, or, not and parentheses. A single word is searched for in all fields.
    """
    if explain:
        _list_fields(out)
        return
    if saved is not None:
        if query or save:
            raise click.UsageError("--saved takes neither a QUERY nor --save")
        query = (_read_saved_search(api, saved),)
    if not query:
        raise click.UsageError("missing QUERY; for example: ferroscope search 'memory_gb >= 512'")
    try:
        one_more = None if limit is None else limit + 1
        matches = list(api.pages("/v1/search", "nodes", limit=one_more, q=" ".join(query)))
    except ServiceError as exc:
        if exc.status != 400:
            raise
        raise Failure(exc.message, exit_code=Exit.USAGE, advice="list the fields: ferroscope search --fields") from None
    if save is not None:
        api.put(f"/v1/saved_searches/{quote(save, safe='')}", {"q": " ".join(query)})
    if verbose:
        asked = urlencode({"q": " ".join(query)})
        click.echo(f"web page: {api.url}/ui/machines?{asked}\nAPI: {api.url}/v1/search?{asked}", err=True)
    shown: list[Json] = sorted(matches[:limit], key=lambda node: natural(label(node)))
    columns.show(out, shown, _SEARCH_COLUMNS, _SEARCH_SPARE, below=None)
    if not matches:
        out.say("No matching nodes.")
        raise click.exceptions.Exit(Exit.FAILURE)
    more = "; there are more" if len(shown) < len(matches) else ""
    out.note(f"{many(len(shown), 'node')}{more}")


def _read_saved_search(api: Client, name: str) -> str:
    """Return the query that was saved under this name."""
    saved = {search["name"]: search["q"] for search in api.get("/v1/saved_searches")["saved_searches"]}
    if name not in saved:
        advice = f"you have saved: {', '.join(saved)}" if saved else "save one: ferroscope search QUERY --save NAME"
        raise Failure(f"saved search {name!r} not found", exit_code=Exit.NOT_FOUND, advice=advice)
    return str(saved[name]) or "has uuid"


def _list_fields(out: Output) -> None:
    from ferroscope_client.hardware.search_fields import fields

    rows = fields()
    names = ("field", "type", "unit", "about")
    titles = [name.upper() for name in names]
    out.show([dict(zip(names, row, strict=True)) for row in rows], lambda screen: screen.print(table(titles, rows)))


_MAX_FILE_BYTES: Final = 1024 * 1024
_Text = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]


class Minimum(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The oldest versions that are not outdated, for models that match the pattern.

    ``parts``: patterns of the models of NICs, disks and other components -> version.
    """

    model: _Text
    bios: _Text | None = None
    bmc: _Text | None = None
    parts: dict[_Text, _Text] = {}

    def __post_init__(self) -> None:
        if not (self.bios or self.bmc or self.parts):
            raise ValueError("expected bios, bmc or parts")

    def oldest(self, component: str, part: str) -> str | None:
        """Return the oldest version for a component; None if there is no entry for it."""
        if component in ("bios", "bmc"):
            return self.bios if component == "bios" else self.bmc
        return next(
            (oldest for pattern, oldest in self.parts.items() if fnmatchcase(part.lower(), pattern.lower())), None
        )


class FirmwareCount(msgspec.Struct):
    """The machines of one model with one version; ``wanted`` None: there is no entry for the model.

    ``part``: the model of the component, "" for the BIOS.
    """

    model: str
    component: str
    part: str
    version: str
    wanted: str | None
    outdated: bool
    nodes: list[str]


@click.group()
def firmware() -> None:
    """Report the firmware of machines."""


@firmware.command("report", epilog="Exit code 0: nothing is outdated. 1: some machines are. 2: FILE is invalid.")
@selector_option
@click.option(
    "--list",
    "file",
    type=InputFile("rb", lazy=True),
    help="YAML: a list of objects with model, a pattern, and the oldest versions that are not outdated: bios, bmc, "
    "parts (patterns of the models of NICs, disks and others).",
)
@click.option("--outdated", is_flag=True, help="Only outdated components.")
@with_api_and_lists
def report(api: Client, out: Output, *, selector: str | None, file: Any, outdated: bool) -> None:
    """Show the firmware of all inspected machines by model; with --list, what is outdated."""
    wanted = [] if file is None else _read(file)
    if outdated and file is None:
        raise click.UsageError("--outdated needs --list")
    by_component: defaultdict[tuple[str, str, str, str], list[str]] = defaultdict(list)
    total: set[str] = set()
    unknown = 0
    for node in api.pages("/v1/nodes", "nodes", fields=("uuid", "name", "hardware"), labels=selector):
        hardware = node.get("hardware") or {}
        components = list(_components(hardware))
        for component in components:
            by_component[names.model(hardware.get("product") or "unknown model"), *component].append(label(node))
        total |= {label(node)} if components else set()
        unknown += not components
    lines = [_line(*key, nodes, wanted) for key, nodes in by_component.items()]
    lines = [line for line in lines if line.outdated or not outdated]
    lines.sort(key=lambda line: (natural(line.model), line.component != "bios", *_order(line)))
    titles = ("MODEL", "COMPONENT", "PART", "VERSION", "MACHINES", "WANTED", "RESULT")
    rows = [
        (line.model, line.component, line.part, line.version, len(line.nodes), line.wanted, _result(line))
        for line in lines
    ]
    if not out.rows(titles, rows):
        out.show(msgspec.to_builtins(lines), lambda screen: screen.print(table(titles, rows)) if rows else None)
    late = len({node for line in lines if line.outdated for node in line.nodes})
    if not out.for_programs:
        out.say(f"{many(len(total), 'machine')}, {late} outdated; {unknown} without a known version")
    if late:
        raise click.exceptions.Exit(Exit.FAILURE)


def _read(file: Any) -> list[Minimum]:
    try:
        return msgspec.convert(yaml_of(file, _MAX_FILE_BYTES) or [], list[Minimum])
    except msgspec.ValidationError as exc:
        raise invalid(f"{file.name} is invalid: {exc}; quote versions such as '2.10'") from None


def _components(hardware: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield component, model and version of each firmware of a machine."""
    if version := hardware.get("firmware"):
        yield "bios", "", version
    for part in hardware.get("components") or ():
        yield part["component"], part.get("model", ""), part["version"]


def _order(line: FirmwareCount) -> tuple[Any, ...]:
    return line.component, natural(line.part), natural(line.version)


def _line(
    model: str, component: str, part: str, version: str, nodes: list[str], wanted: list[Minimum]
) -> FirmwareCount:
    """Compare with the first entry for model and component; numbers count as numbers, so 2.9 is before 2.10."""
    entries = (
        minimum.oldest(component, part) for minimum in wanted if fnmatchcase(model.lower(), minimum.model.lower())
    )
    needed = next(filter(None, entries), None)
    old = needed is not None and natural(version) < natural(needed)
    return FirmwareCount(model, component, part, version, needed, old, sorted(nodes, key=natural))


def _result(line: FirmwareCount) -> str:
    if line.wanted is None:
        return ""
    return "outdated" if line.outdated else "ok"
