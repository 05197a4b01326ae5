"""``ferroscope node list | show | ports | inventory | health | timeline | validate | lldp``: read-only commands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ferroscope_client.cli import lookup
from ferroscope_client.cli.lookup import find, label, node_argument
from ferroscope_client.cli.node import columns, timeline
from ferroscope_client.cli.node.timeline import follow
from ferroscope_client.cli.output import (
    Output,
    key_values,
    table,
    watch_option,
    with_api,
    with_api_and_lists,
    with_api_and_wide,
)
from ferroscope_client.cli.selection import StateType, selector_option
from ferroscope_client.cli.text import moment
from ferroscope_client.client import Client, Json, as_commands, node_path
from ferroscope_client.core import labels
from ferroscope_client.core.node import SETTABLE
from ferroscope_client.core.states import Provision
from ferroscope_client.core.values import natural
from ferroscope_client.errors import Exit
from ferroscope_client.hardware import readings
from ferroscope_client.hardware.readings import mapping

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_LISTED: Final = (
    "uuid",
    "name",
    "driver",
    "provision_state",
    "power_state",
    "maintenance",
    "maintenance_reason",
    "owner",
    "resource_class",
    "labels",
    "hardware",
    "provision_updated_at",
    "last_error",
)
_SHOWN_FIRST: Final = {
    "name": "Name",
    "uuid": "UUID",
    "provision_state": "State",
    "target_provision_state": "Target state",
    "power_state": "Power",
    "last_error": "Last error",
    "maintenance": "Maintenance",
    "maintenance_reason": "Maintenance reason",
    "maintenance_until": "Maintenance until",
    "protected": "Protected",
    "protected_reason": "Protection reason",
    "retired": "Retired",
    "retired_reason": "Retirement reason",
    "auto_discovered": "Discovered",
    "inbox": "In the inbox",
    "orphaned_at": "Orphan since",
    "labels": "Labels",
}
_SHOWN_LAST: Final = {
    "driver": "Driver",
    "inspect_interface": "Inspect interface",
    "boot_interface": "Boot interface",
    "disable_power_off": "Power-off disabled",
    "owner": "Owner",
    "resource_class": "Resource class",
    "description": "Description",
    "driver_info": "Driver info",
    "properties": "Properties",
    "extra": "Extra",
    "created_at": "Created",
    "inspection_started_at": "Inspection began",
    "inspection_finished_at": "Inspection ended",
}

# Further fields that an operator can set.
_OTHERS: Final = tuple(
    name for name, field in SETTABLE.items() if field.stored and name not in (*_SHOWN_FIRST, *_SHOWN_LAST)
)


@click.command("list")
@click.option("--state", type=StateType(), metavar="STATE", help="Only nodes in this state, such as inspect-failed.")
@click.option("--failed", is_flag=True, help="Short for --state inspect-failed.")
@selector_option
@click.option("--driver", help="Only nodes with this driver.")
@click.option("--owner", help="Only nodes of this owner.")
@click.option("--resource-class", help="Only nodes of this resource class.")
@click.option("--auto-discovered/--enrolled", default=None, help="Only discovered nodes, or only enrolled ones.")
@click.option("--maintenance/--no-maintenance", default=None, help="Only nodes in maintenance, or not.")
@click.option("--orphaned/--tracked", default=None, help="Only nodes that the registry no longer has, or still has.")
@click.option(
    "--sort",
    metavar="FIELD[:desc]",
    help="Sort by a field of the API (id: order of enrollment); by default by name, sim-2 before sim-10.",
)
@click.option("--limit", type=click.IntRange(min=1), help="Maximum number of nodes.")
@click.option("--fields", metavar="A,B,...", help="Show these fields of the API instead of the default columns.")
@watch_option
@with_api_and_lists
def list_nodes(
    api: Client,
    out: Output,
    *,
    state: str | None,
    failed: bool,
    sort: str | None,
    fields: str | None,
    limit: int | None,
    selector: str | None,
    watch: bool,
    **filters: Any,
) -> None:
    """List nodes with a summary of their hardware."""
    if failed and state not in (None, Provision.INSPECT_FAILED):
        raise click.UsageError("--failed is short for --state inspect-failed; use only one of them")
    key, _, direction = (sort or "id").partition(":")
    wanted = _LISTED if fields is None else tuple(name.strip() for name in fields.split(",") if name.strip())
    if not wanted:
        raise click.UsageError("--fields is empty; for example: --fields name,provision_state")

    def fetch() -> list[Json]:
        matching = api.pages(
            "/v1/nodes",
            "nodes",
            fields=tuple(dict.fromkeys((*wanted, "uuid", "name"))),
            limit=limit if sort else None,
            provision_state=str(Provision.INSPECT_FAILED) if failed else state,
            sort_key=key,
            sort_dir=direction or "asc",
            labels=selector,
            **filters,
        )
        return list(matching) if sort else sorted(matching, key=lambda node: natural(label(node)))

    if watch:
        if fields is not None or out.is_csv:
            raise click.UsageError("--watch cannot be combined with --fields or -o csv")
        follow(out, lambda: fetch()[:limit], lambda nodes: columns.live(out, nodes))
    matching = fetch()
    nodes = [{name: node.get(name) for name in wanted} for node in matching[:limit]]
    if fields is not None:
        titles, rows = [name.upper() for name in wanted], [list(node.values()) for node in nodes]
        if not out.rows(wanted, rows):
            out.show(nodes, lambda screen: screen.print(table(titles, rows)))
        return
    columns.show(out, nodes)
    if not nodes:
        narrowed = any(condition is not None for condition in (state, failed or None, selector, *filters.values()))
        out.say("No matching nodes." if narrowed else _NO_NODES)
    elif not out.for_programs:
        more = f" of {len(matching):,}" if limit and limit < len(matching) else ""
        out.note(f"{len(nodes):,}{more} {'node' if len(matching) == 1 else 'nodes'}")


_NO_NODES: Final = "No nodes yet; to enroll one: ferroscope node create NAME --driver DRIVER --port MAC"


@click.command("show")
@node_argument
@watch_option
@with_api_and_wide
def show(api: Client, out: Output, *, ident: str, watch: bool) -> None:
    """Show a node and its ports; with -o wide all fields of the API."""

    def fetch(ident: str) -> Json:
        node = find(api, ident, fields=None)
        return node | {"ports": _ports_of(api, node["uuid"])}

    node = fetch(ident)
    if watch:
        follow(out, lambda: [fetch(node["uuid"])], lambda nodes: _describe(nodes[0], wide=out.wide))
    out.show(node, lambda screen: screen.print(_describe(node, wide=out.wide)))


def _describe(node: Json, *, wide: bool) -> Table:
    """Return the node as a table of titles and values; ``wide``: with all fields."""
    values = {name: moment(value) if name.endswith("_at") else value for name, value in node.items()}
    values["labels"] = labels.format_labels(node["labels"])
    shown = {title: values.get(name) for name, title in _SHOWN_FIRST.items()}
    shown = {title: value for title, value in shown.items() if value is not False or title == "Maintenance"}
    shown |= columns.machine(node.get("hardware") or {})
    shown |= {title: values.get(name) for name, title in _SHOWN_LAST.items() if values.get(name) is not False}
    shown |= {_title(name): value for name in _OTHERS if (value := node.get(name))}
    shown["Ports"] = [port["address"] for port in node["ports"]]
    if wide:
        others = node.keys() - {*_SHOWN_FIRST, *_SHOWN_LAST, *_OTHERS, "hardware", "ports", "links"}
        shown |= {_title(name): values[name] for name in sorted(others)}
    return key_values(shown)


def _title(name: str) -> str:
    return name.capitalize().replace("_", " ").replace("uuid", "UUID")


@click.command("ports")
@node_argument
@with_api
def ports(api: Client, out: Output, *, ident: str) -> None:
    """List the ports (NICs) of a node."""
    node_ports = _ports_of(api, find(api, ident)["uuid"])
    rows = [
        (
            port["address"],
            port["uuid"],
            port["pxe_enabled"],
            port.get("physical_network"),
            port.get("local_link_connection") or None,
        )
        for port in node_ports
    ]
    titles = ("MAC", "UUID", "PXE", "PHYSICAL NETWORK", "SWITCH")
    out.show(node_ports, lambda screen: screen.print(table(titles, rows)))


def _ports_of(api: Client, uuid: str) -> list[Json]:
    return list(api.pages("/v1/ports", "ports", node=uuid, detail=True))


@click.command("inventory")
@node_argument
@click.option("--save", type=click.Path(dir_okay=False, path_type=Path), help="Write it to a file as JSON.")
@with_api
def inventory(api: Client, out: Output, *, ident: str, save: Path | None) -> None:
    """Show the inventory: a summary, or with -o json everything."""
    stored = lookup.fetch(api, find(api, ident))
    if save is not None:
        lookup.save(stored, save, out)
        return
    out.show(stored, lambda screen: columns.draw(screen, stored["inventory"]))


@click.command("health")
@node_argument
@with_api
def health(api: Client, out: Output, *, ident: str) -> None:
    """Show what the BMC last reported: problems, drives, sensors, warnings of the event log."""
    from ferroscope_client.hardware.health import read, report

    plugin_data = lookup.fetch(api, find(api, ident)).get("plugin_data")
    health_report = read(plugin_data)

    def draw(screen: Console) -> None:
        if health_report is not None:
            asked = "not asked by the last inspection" if health_report.kept else None
            screen.print(
                key_values({"Health": health_report.state, "Read": moment(health_report.read_at), "BMC": asked})
            )
            for titles, lines in ((_PARTS, health_report.parts), (_SENSORS, health_report.sensors)):
                screen.print(table(titles, [(part.kind, part.name, part.health, part.value) for part in lines]))
            screen.print(table(_LOG, [(event.created, event.severity, event.message) for event in health_report.log]))

    out.show(report(plugin_data), draw)
    if health_report is None:
        out.say("no health data: it comes from Redfish BMCs, out of band or with [inspector] collect_out_of_band")
    elif not health_report.complete:
        out.say("the BMC did not answer in time, so some values are missing")


_PARTS: Final = ("PART", "NAME", "HEALTH", "DETAILS")
_SENSORS: Final = ("SENSOR", "NAME", "HEALTH", "READING")
_LOG: Final = ("TIME", "SEVERITY", "MESSAGE")


@click.command("timeline")
@node_argument
@click.option("--all", "everything", is_flag=True, help="Show all inspections, not only the newest.")
@click.option("-w", "--watch", is_flag=True, help="Show each step as it happens, until the inspection ends.")
@with_api
def show_timeline(api: Client, out: Output, *, ident: str, everything: bool, watch: bool) -> None:
    """Show the steps of a node's inspections; answers "why is it stuck?"."""
    if watch and (everything or out.for_programs):
        raise click.UsageError("--watch cannot be combined with --all, -o json or -o yaml")
    if watch:
        timeline.watch(api, find(api, ident)["uuid"])
        return
    steps = timeline.fetch(api, find(api, ident)["uuid"], newest_only=not everything)
    out.show(steps, lambda screen: timeline.draw(screen, steps))


# The interfaces that an inspection uses; all others belong to deployment.
_VALIDATED: Final = ("boot", "inspect", "management", "power")


@click.command("validate")
@node_argument
@click.option("--all", "everything", is_flag=True, help="Also show interfaces that are not supported.")
@with_api
def validate(api: Client, out: Output, *, ident: str, everything: bool) -> None:
    """Check that a node has the properties that its driver requires; exit code 1 if not."""
    validation = api.get(node_path(find(api, ident)["uuid"], "validate"))
    ours = {name: validation[name] for name in _VALIDATED if name in validation}
    shown = validation if everything else ours
    rows = [(name, check["result"], as_commands(check.get("reason") or "")) for name, check in shown.items()]
    out.show(validation, lambda screen: screen.print(table(("INTERFACE", "VALID", "REASON"), rows)))
    if any(check["result"] is False for check in ours.values()):
        raise click.exceptions.Exit(Exit.FAILURE)


# ``ferroscope node lldp``: the switch port of each NIC of a machine, from its stored inventory.
#
# No hook is required: the inventory contains the LLDP frames, which are decoded here.

_TITLES: Final = ("NIC", "MAC", "SWITCH", "PORT", "DESCRIPTION", "VLAN", "MTU", "SWITCH ID")


@click.command("lldp")
@node_argument
@with_api
def lldp(api: Client, out: Output, *, ident: str) -> None:
    """Show the switch port that each NIC is connected to (LLDP)."""
    data = lookup.fetch(api, find(api, ident))
    cables = list(_cables(mapping(data["inventory"]), mapping(data.get("plugin_data"))))
    out.show(cables, lambda screen: screen.print(table(_TITLES, [_row(cable) for cable in cables])))
    if not any(cable["lldp"] for cable in cables):
        out.say("no LLDP data; the ramdisk collects it if the kernel parameter ipa-collect-lldp=1 is set")
    for cable in cables:
        for problem in cable["problems"]:
            out.say(f"{cable['name']}: {problem}")


def _cables(inventory: Json, plugin_data: Json) -> Iterator[Json]:
    """Yield each interface with its LLDP data (``switch_...``), and the errors of decoding it."""
    from ferroscope_client.lldp import frame, values

    for name, record in readings.named_interfaces(inventory):
        tlvs, unreadable = frame(readings.lldp(name, record, plugin_data))
        decoded, malformed = values(tlvs)
        yield {"name": name, "mac": record.get("mac_address"), "lldp": decoded, "problems": [*unreadable, *malformed]}


def _row(cable: Json) -> tuple[Any, ...]:
    from ferroscope_client.lldp import port_name

    decoded = cable["lldp"]
    port, description = port_name(decoded), decoded.get("switch_port_description")
    return (
        cable["name"],
        cable["mac"],
        decoded.get("switch_system_name"),
        port,
        None if description == port else description,
        decoded.get("switch_port_untagged_vlan_id"),
        decoded.get("switch_port_mtu"),
        decoded.get("switch_chassis_id"),
    )
