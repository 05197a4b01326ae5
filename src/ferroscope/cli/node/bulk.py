"""``ferroscope node import | export``: enroll and change many nodes from a file, and write such a file.

An import creates what is missing and changes what differs; what the file does not mention is left alone. So it can be
repeated, after an interruption too. Everything is checked before the first node is created; afterwards each row
succeeds or fails by itself.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from ferroscope.cli.client import Api, Json, connect, node_path
from ferroscope.cli.exits import Exit, Failure
from ferroscope.cli.lookup import label
from ferroscope.cli.node import node_file
from ferroscope.cli.node.node_file import DOCUMENTS, FileError, Row
from ferroscope.cli.node.write import added_change, create_port, create_with_ports
from ferroscope.cli.output import Output, cloud_option, insecure_option, output_option, table, url_option
from ferroscope.cli.selection import Wanted, resolve, selectors
from ferroscope.core import values
from ferroscope.core.secrets import is_place

if TYPE_CHECKING:
    from rich.console import Console

_PARALLEL: Final = 4
_QUIET: Final = ("created", "changed", "unchanged", "would be created", "would be changed")


class Result(msgspec.Struct):
    """What became of a row of the file."""

    where: str
    node: str
    uuid: str | None
    result: str
    detail: str = ""


class Fleet:
    """The nodes that exist, found as the rows of a file identify them."""

    def __init__(self, nodes: Iterable[Json], ports: Iterable[Json]) -> None:
        self._nodes = {node["uuid"]: node for node in nodes}
        self._names = {node["name"]: node["uuid"] for node in self._nodes.values() if node["name"]}
        self._macs = {port["address"]: port["node_uuid"] for port in ports}

    @classmethod
    def of(cls, api: Api) -> Fleet:
        fields = ("uuid", "address", "node_uuid")
        return cls(api.pages("/v1/nodes/detail", "nodes"), api.pages("/v1/ports", "ports", fields=fields))

    def find(self, row: Row) -> Json | None:
        """Return the node of a row, None if there is none; ``Failure`` if the row's identifiers are of two nodes."""
        name, uuid = row.fields.get("name"), row.fields.get("uuid")
        found = {f"UUID {uuid}": uuid} if uuid in self._nodes else {}
        if name in self._names:
            found[f"name {name}"] = self._names[name]
        found |= {f"MAC address {mac}": self._macs[mac] for mac in row.macs if mac in self._macs}
        if len(set(found.values())) > 1:
            matches = ", ".join(
                f"{what} is {label(self._nodes[node])}" for what, node in found.items() if node in self._nodes
            )
            raise Failure(f"the row matches several nodes: {matches}", exit_code=Exit.CONFLICT)
        return self._nodes.get(next(iter(found.values()))) if found else None

    def lacks(self, macs: Iterable[str]) -> list[str]:
        """Return the MAC addresses that no node has."""
        return [mac for mac in macs if mac not in self._macs]


@click.command(
    "import",
    epilog="Exit code 0: every row is as the file says. 1: some failed. 2: the file is invalid; nothing was changed.",
)
@click.argument("file", type=click.File("rb", lazy=True))
@click.option("--format", "kind", type=click.Choice(node_file.FORMATS), help="Format. [default: by the name's suffix]")
@click.option("--driver", help="BMC driver of the rows without one.")
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
@click.option(
    "--update-passwords",
    "passwords",
    is_flag=True,
    help="Set passwords also where one is stored; stored ones cannot be compared.",
)
@url_option
@cloud_option
@insecure_option
@output_option
def import_nodes(
    file: Any,
    *,
    kind: str | None,
    driver: str | None,
    dry_run: bool,
    passwords: bool,
    url: str | None,
    cloud: str | None,
    insecure_http: bool,
    fmt: str,
) -> None:
    """Enroll or change nodes as FILE says; "-" is standard input.

    FILE is CSV with a header, YAML or JSON. CSV columns: name, uuid, driver, macs (separated by spaces), bmc_address,
    bmc_username, bmc_password, further fields such as owner or resource_class, and FIELD/KEY such as
    driver_info/redfish_verify_ca or extra/rack. YAML and JSON are as for 'baremetal create'. A password may be a
    reference (secret://...). Nodes are found by UUID, name or MAC address; what FILE does not mention stays as it is.
    """

    def client() -> Api:
        return connect(url, cloud=cloud, insecure_http=insecure_http)

    rows = _rows(file, kind, driver)
    api, out = client(), Output(fmt)
    _use_drivers(api, rows)
    fleet = Fleet.of(api)
    own = threading.local()

    def carry_out(row: Row) -> Result:
        if not hasattr(own, "api"):
            own.api = client()  # a client is for one thread
        return _carried_out(own.api, fleet, row, dry_run=dry_run, passwords=passwords)

    with ThreadPoolExecutor(_PARALLEL) as pool:
        results = list(_shown(out, pool.map(carry_out, rows), len(rows)))
    out.show([msgspec.to_builtins(one) for one in results], lambda screen: _draw(screen, results))
    if any(one.result == "failed" for one in results):
        raise click.exceptions.Exit(Exit.FAILURE)


def _rows(file: Any, kind: str | None, driver: str | None) -> list[Row]:
    suffix = str(file.name).rpartition(".")[2].lower()
    kind = kind or {"yml": "yaml"}.get(suffix, suffix)
    if kind not in node_file.FORMATS:
        raise click.UsageError(f"the format of {file.name} is unknown; use --format {'|'.join(node_file.FORMATS)}")
    content = file.read(node_file.LARGEST + 1)
    if len(content) > node_file.LARGEST:
        raise click.UsageError(f"{file.name} is larger than {node_file.LARGEST // 2**20} MiB")
    try:
        rows = node_file.read(content.decode("utf-8-sig"), kind)
    except UnicodeDecodeError as exc:
        raise click.UsageError(f"{file.name} is not in UTF-8: {exc.reason} at byte {exc.start}") from None
    except FileError as exc:
        raise click.UsageError(f"{file.name} is invalid; nothing was changed:\n{exc}") from None
    for row in rows:
        if driver is not None:
            row.fields.setdefault("driver", driver)
    return rows


def _use_drivers(api: Api, rows: list[Row]) -> None:
    """Put what a row says of its BMC under the names that its driver has for it; ``UsageError``."""
    prefixes: dict[str, str] = {}
    errors = []
    enabled = {one["name"] for one in api.get("/v1/drivers")["drivers"]}
    for row in rows:
        driver = row.fields.get("driver")
        if driver is not None and driver not in enabled:
            errors.append(f"{row.where}: driver {driver} is not enabled; enabled: {', '.join(sorted(enabled))}")
        elif row.bmc and driver is None:
            errors.append(f"{row.where}: {', '.join(row.bmc)} need a driver: add the column, or use --driver")
        elif row.bmc and driver is not None:
            if driver not in prefixes:
                prefixes[driver] = _prefix(api, driver)
            if not prefixes[driver]:
                errors.append(f"{row.where}: driver {driver} has no BMC address; use driver_info/KEY")
            ends = {f"{prefixes[driver]}{name.removeprefix('bmc')}": value for name, value in row.bmc.items()}
            row.fields["driver_info"] = ends | row.fields.get("driver_info", {})
    if errors:
        raise click.UsageError(f"the file is invalid; nothing was changed:\n{FileError(errors)}")


def _prefix(api: Api, driver: str) -> str:
    names = [name for name in api.get(f"/v1/drivers/{driver}/properties") if name.endswith("_address")]
    return min(names, key=len).removesuffix("_address") if names else ""


def _carried_out(api: Api, fleet: Fleet, row: Row, *, dry_run: bool, passwords: bool) -> Result:
    try:
        node = fleet.find(row)
        if node is None:
            return _created(api, row, dry_run=dry_run)
        changes, macs = _changes(node, row, passwords=passwords), fleet.lacks(row.macs)
        what = [*(change["path"].lstrip("/") for change in changes), *(f"port {mac}" for mac in macs)]
        result = Result(row.where, label(node), node["uuid"], "unchanged", ", ".join(what))
        if not what:
            return result
        if not dry_run:
            for mac in macs:
                create_port(api, node["uuid"], mac)
            if changes:
                api.patch(node_path(node["uuid"]), changes)
        return msgspec.structs.replace(result, result="would be changed" if dry_run else "changed")
    except Failure as exc:
        return Result(row.where, row.label, None, "failed", exc.message)


def _created(api: Api, row: Row, *, dry_run: bool) -> Result:
    if "driver" not in row.fields:
        raise Failure("the node does not exist; to create it a driver is required: add the column, or use --driver")
    if dry_run:
        return Result(row.where, row.label, None, "would be created")
    node = create_with_ports(api, row.fields, row.macs)
    return Result(row.where, label(node), node["uuid"], "created")


def _changes(node: Json, row: Row, *, passwords: bool) -> list[Json]:
    """Return the JSON patch that makes the node as the row says; secrets go with a change of the BMC's address."""
    changes = []
    for name, value in row.fields.items():
        if name == "uuid":
            continue
        if name not in DOCUMENTS:
            if (node.get(name) or "") != (value or ""):
                changes.append(added_change(name, value=value))
            continue
        stored = node.get(name) or {}
        different = {key: item for key, item in value.items() if not _same(key, stored.get(key), item)}
        if passwords or any(is_place(key) for key in different):
            different |= {key: item for key, item in value.items() if values.is_secret(key)}
        changes += [added_change(name, key, value=item) for key, item in different.items()]
    return changes


def _same(key: str, stored: Any, given: Any) -> bool:
    if values.is_secret(key):
        return bool(stored == values.MASK)
    return stored is not None and str(given) in (str(stored), node_file.text(stored))


def _shown(out: Output, results: Iterator[Result], total: int) -> Iterator[Result]:
    """Pass the results on, with a progress bar on a terminal."""
    from rich.progress import track

    from ferroscope.cli.output import console

    screen = console(error=True)
    quiet = out.for_programs or not screen.is_terminal
    return iter(results) if quiet else iter(track(results, "Importing", total=total, console=screen, transient=True))


def _draw(screen: Console, results: list[Result]) -> None:
    notable = [one for one in results if one.result not in _QUIET or one.result.startswith("would")]
    if notable:
        rows = [(one.where, one.node, one.result, one.detail) for one in notable]
        screen.print(table(("WHERE", "NODE", "RESULT", "DETAIL"), rows))
    counts = Counter(one.result for one in results)
    screen.print(", ".join(f"{number} {what}" for what, number in sorted(counts.items())) or "the file has no nodes")
    if counts["created"]:
        screen.print(
            "next: ferroscope node manage --state enroll --wait, then: ferroscope inspect --state manageable --watch"
        )


@click.command("export")
@selectors
@url_option
@cloud_option
@insecure_option
@click.option(
    "-o", "--output", "kind", type=click.Choice(node_file.FORMATS), default="csv", show_default=True, help="Format."
)
def export(*, wanted: Wanted, url: str | None, cloud: str | None, insecure_http: bool, kind: str) -> None:
    """Print nodes in the format of 'node import'; without NODE all nodes. Passwords are not included."""
    api = connect(url, cloud=cloud, insecure_http=insecure_http)
    if not (wanted.idents or wanted.everything or wanted.failed or wanted.state):
        wanted = msgspec.structs.replace(wanted, everything=True)
    chosen = resolve(api, wanted, inbox=bool(wanted.idents))
    for failure in chosen.failures.values():
        raise failure
    wanted_uuids = [node["uuid"] for node in chosen.nodes]
    every = {node["uuid"]: node for node in api.pages("/v1/nodes/detail", "nodes")}
    macs: dict[str, list[str]] = defaultdict(list)
    for port in api.pages("/v1/ports", "ports", fields=("uuid", "address", "node_uuid")):
        macs[port["node_uuid"]].append(port["address"])
    nodes = [every[uuid] for uuid in wanted_uuids if uuid in every]
    click.echo(node_file.written(nodes, lambda uuid: sorted(macs[uuid]), kind), nl=False)
