"""``ferroscope node import | export``: enroll and change many nodes from a file, and write such a file.

An import creates missing nodes and changes different values. It leaves alone what the file does not mention, so it can
be repeated, also after an interruption. Each row succeeds or fails separately.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from ferroscope_client.cli.input_files import InputFile, content_of, invalid
from ferroscope_client.cli.node.write import allow_shared_bmc, create_with_ports, ensure_port
from ferroscope_client.cli.output import Output, cloud_option, insecure_option, output_option, table, url_option
from ferroscope_client.cli.screen import track
from ferroscope_client.cli.selection import NodeSelection, resolve, selectors
from ferroscope_client.client import Client, Json, connect, node_path
from ferroscope_client.core.bmc_place import ALLOW_SHARED
from ferroscope_client.core.text_files import NotTextError, text_of
from ferroscope_client.enrollment import importing, node_file
from ferroscope_client.enrollment.importing import ExistingFleet, RowResult
from ferroscope_client.enrollment.node_file import NodeFileError, NodeRow
from ferroscope_client.errors import Exit, Failure

if TYPE_CHECKING:
    from rich.console import Console

_MAX_PARALLEL: Final = 4
_QUIET: Final = (importing.CREATED, importing.CHANGED, importing.UNCHANGED)


class HttpImportApi:
    """The calls of an import over HTTP; for one thread."""

    def __init__(self, api: Client) -> None:
        self._api = api

    def create(self, fields: Json, macs: Collection[str]) -> Json:
        return _of_row(lambda: create_with_ports(self._api, fields, macs))

    def add_port(self, node: str, mac: str) -> None:
        _of_row(lambda: ensure_port(self._api, node, mac))

    def change(self, node: str, patch: list[Json]) -> None:
        _of_row(lambda: self._api.patch(node_path(node), patch))

    def enabled(self) -> set[str]:
        return {driver["name"] for driver in self._api.get("/v1/drivers")["drivers"]}

    def properties(self, driver: str) -> Json:
        return self._api.get(f"/v1/drivers/{driver}/properties")


def _of_row(call: Callable[[], Json]) -> Json:
    try:
        return call()
    except Failure as exc:
        raise importing.RowError(exc.message) from None


@click.command(
    "import",
    epilog="Exit code 0: all nodes match the file. 1: some rows failed. 2: no row can be read; nothing was changed.",
)
@click.argument("file", type=InputFile("rb", lazy=True))
@click.option("--format", "kind", type=click.Choice(node_file.FORMATS), help="Format. [default: by the name's suffix]")
@click.option("--driver", help="BMC driver of the rows without one.")
@click.option("--unknown-as-labels", is_flag=True, help="CSV: columns that are not fields become labels.")
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
@click.option(
    "--update-passwords",
    "passwords",
    is_flag=True,
    help="Set passwords also where one is stored; stored ones cannot be compared.",
)
@click.option("--rename", is_flag=True, help="Rename nodes that are identified only by a MAC address.")
@allow_shared_bmc
@url_option
@cloud_option
@insecure_option
@output_option
def import_nodes(
    file: Any,
    *,
    kind: str | None,
    driver: str | None,
    unknown_as_labels: bool,
    dry_run: bool,
    passwords: bool,
    rename: bool,
    allow_shared: bool,
    url: str | None,
    cloud: str | None,
    insecure_http: bool,
    fmt: str,
) -> None:
    """Enroll or change the nodes that FILE describes; "-" is standard input.

    FILE is CSV (commas, semicolons, tabs or bars) with a header, YAML or JSON. CSV columns: name, uuid, driver, macs
    (separated by spaces), bmc_address, bmc_username, bmc_password, labels (rack=r1,spare), further fields such as
    owner, and FIELD/KEY such as driver_info/redfish_verify_ca or extra/rack. YAML and JSON are as for 'baremetal
    create'. A password may be a reference (secret://...). Nodes are found by UUID, name or MAC address. Values
    that FILE does not mention do not change. A wrong row is skipped and listed with its line and the reason.
    """

    def client() -> Client:
        return connect(url, cloud=cloud, insecure_http=insecure_http)

    rows = _read_rows(file, kind, driver, unknown_as_labels=unknown_as_labels)
    for row in rows:
        if allow_shared and (row.bmc or "driver_info" in row.fields):
            row.fields["driver_info"] = {**row.fields.get("driver_info", {}), ALLOW_SHARED: True}
    api, out = client(), Output(fmt)
    importing.use_drivers(HttpImportApi(api), rows)
    ports = api.pages("/v1/ports", "ports", fields=("uuid", "address", "node_uuid"))
    fleet = ExistingFleet(api.pages("/v1/nodes/detail", "nodes"), ports, rename=rename)
    importing.check_rows(fleet, rows)
    own = threading.local()

    def carry_out(row: NodeRow) -> RowResult:
        if not hasattr(own, "calls"):
            own.calls = HttpImportApi(client())
        return importing.carry_out(own.calls, fleet, row, dry_run=dry_run, passwords=passwords)

    order = {row.where: number for number, row in enumerate(rows)}
    rounds = importing.in_rounds(HttpImportApi(api), fleet, rows, dry_run=dry_run)
    with ThreadPoolExecutor(_MAX_PARALLEL) as pool:
        done = (result for ready in rounds for result in pool.map(carry_out, ready))
        results = sorted(track(done, "Importing", len(rows)), key=lambda result: order[result.where])
    out.show([msgspec.to_builtins(row_result) for row_result in results], lambda screen: _draw(screen, results))
    if any(row_result.result == importing.FAILED for row_result in results):
        raise click.exceptions.Exit(Exit.FAILURE)


def _invalid(file: Any, error: NodeFileError) -> Failure:
    message = f"{file.name} is invalid; nothing was changed:\n{error}"
    foreign = any(line.startswith("unknown column") for line in error.errors)
    advice = "to make labels of all unknown columns: --unknown-as-labels" if foreign else ""
    return invalid(message, advice)


def _read_rows(file: Any, kind: str | None, driver: str | None, *, unknown_as_labels: bool = False) -> list[NodeRow]:
    suffix = str(file.name).rpartition(".")[2].lower()
    kind = kind or node_file.BY_SUFFIX.get(suffix)
    if kind is None:
        raise click.UsageError(f"the format of {file.name} is unknown; use --format {'|'.join(node_file.FORMATS)}")
    content = content_of(file, node_file.MAX_FILE_BYTES)
    try:
        rows = node_file.read(text_of(content), kind, unknown_as_labels=unknown_as_labels)
    except NotTextError as exc:
        raise invalid(f"{file.name}: {exc}") from None
    except NodeFileError as exc:
        raise _invalid(file, exc) from None
    for row in rows:
        if driver is not None:
            row.fields.setdefault("driver", driver)
    return rows


def _draw(screen: Console, results: list[RowResult]) -> None:
    notable = [row_result for row_result in results if row_result.result not in _QUIET]
    if notable:
        rows = [(row_result.where, row_result.node, row_result.result, row_result.detail) for row_result in notable]
        screen.print(table(("WHERE", "NODE", "RESULT", "DETAIL"), rows))
    counts = Counter(row_result.result for row_result in results)
    screen.print(
        ", ".join(f"{number} {outcome}" for outcome, number in sorted(counts.items())) or "the file has no nodes"
    )
    if counts[importing.CREATED]:
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
def export(*, wanted: NodeSelection, url: str | None, cloud: str | None, insecure_http: bool, kind: str) -> None:
    """Print nodes in the format of 'node import'; without NODE all nodes. Passwords are not included."""
    api = connect(url, cloud=cloud, insecure_http=insecure_http)
    if not (wanted.idents or wanted.everything or wanted.failed or wanted.state or wanted.labels):
        wanted = msgspec.structs.replace(wanted, everything=True)
    chosen = resolve(api, wanted, inbox=bool(wanted.idents))
    for failure in chosen.failures.values():
        raise failure
    wanted_uuids = [node["uuid"] for node in chosen.nodes]
    every = {node["uuid"]: node for node in track(api.pages("/v1/nodes/detail", "nodes"), "Exporting")}
    macs: dict[str, list[str]] = defaultdict(list)
    for port in api.pages("/v1/ports", "ports", fields=("uuid", "address", "node_uuid")):
        macs[port["node_uuid"]].append(port["address"])
    nodes = [every[uuid] for uuid in wanted_uuids if uuid in every]
    click.echo(node_file.format_nodes(nodes, lambda uuid: sorted(macs[uuid]), kind), nl=False)
