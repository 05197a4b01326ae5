"""``ferroscope node inbox | approve | reject | rejected | readmit``: approval of discovered machines and held data."""

from __future__ import annotations

from typing import Any, Final

import click
import msgspec

from ferroscope_client.cli.lookup import Listing, list_refused_callers
from ferroscope_client.cli.node.actions import each
from ferroscope_client.cli.output import Output, table, with_api
from ferroscope_client.cli.selection import NodeSelection, Selection, confirm, resolve, selectors, suggested
from ferroscope_client.cli.text import age, ago, short
from ferroscope_client.client import Client, Json, ServiceError, node_path, segment
from ferroscope_client.core.values import many
from ferroscope_client.hardware.readings import mapping, text

_LISTED: Final = (
    "uuid",
    "name",
    "driver",
    "driver_info",
    "driver_internal_info",
    "created_at",
    "last_error",
    "provision_state",
    "hardware",
)


@click.command("inbox")
@with_api
def inbox(api: Client, out: Output) -> None:
    """List discovered nodes, and nodes with held inspection data, that are waiting for approval.

    Refused machines that belong to no node follow.
    """
    nodes = list(api.pages("/v1/nodes", "nodes", fields=_LISTED, inbox=True))
    for node in nodes:
        ports = api.pages("/v1/ports", "ports", node=node["uuid"], fields=("uuid", "address"))
        node["ports"] = [port["address"] for port in ports]
        node["machine"] = _words(node["hardware"]) or _machine(api, node["uuid"])
        node["suggested_name"] = suggested(node)
        internal = mapping(node.pop("driver_internal_info", None))
        node["discovery"], node["held"] = internal.get("discovery") or {}, internal.get("held") or {}
    out.show(nodes, lambda screen: screen.print(_listing(nodes)))
    if not nodes:
        out.say("the inbox is empty")
    if not out.for_programs:
        _show_refused(out, list_refused_callers(api))


def _show_refused(out: Output, callers: list[Json]) -> None:
    """Print the machines that called and belong to no node."""
    if not callers:
        return
    rows = [
        (
            ", ".join(caller["macs"] or caller["bmc_addresses"]),
            caller["serial"],
            caller["source"],
            ago(caller["called_at"]),
            caller["message"],
        )
        for caller in callers
    ]
    out.say("\nCalled, but not enrolled:")
    out.show(callers, lambda screen: screen.print(table(("MACS", "SERIAL", "FROM", "CALLED", "REFUSED BECAUSE"), rows)))
    out.say("Add a MAC to its node: ferroscope node set NODE --add-port MAC, or enroll it: ferroscope node create")


@click.command("approve", epilog="Patterns match names and the names that the inbox suggests.")
@selectors
@click.option("--suggested-names", is_flag=True, help="Set the suggested name of nodes without a name.")
@with_api
def approve(api: Client, out: Output, *, wanted: NodeSelection, suggested_names: bool) -> None:
    """Approve discovered nodes, which then count as enrolled, and process held inspection data.

    For a node that failed with bmc-other-machine, the present machine is approved.
    """
    chosen = _waiting(api, out, wanted, "approve")

    def act(node: Json) -> None:
        name = suggested(node) if suggested_names and not node["name"] else None
        if name:
            api.patch(node_path(node["uuid"]), [{"op": "add", "path": "/name", "value": name}])
        api.post(node_path(node["uuid"], "approve"))

    each(out, chosen, act, done="approved")


@click.command("reject")
@selectors
@click.option(
    "--source", metavar="ADDRESS", help="All nodes in the inbox that were discovered from this source address."
)
@with_api
def reject(api: Client, out: Output, *, wanted: NodeSelection, source: str | None) -> None:
    """Delete discovered nodes, and do not discover their machines again. Held inspection data is dropped.

    A node whose data was held is kept; its inspection fails.
    """
    if source is not None:
        if msgspec.structs.replace(wanted, yes=False) != NodeSelection():
            raise click.UsageError("--source cannot be combined with nodes or other options that select nodes")
        nodes = api.post("/v1/rejections", {"source": source})["nodes"]
        out.show({"rejected": nodes}, lambda screen: screen.print(f"{many(len(nodes), 'node')} rejected"))
        return
    chosen = _waiting(api, out, wanted, "reject")
    each(out, chosen, lambda node: api.post(node_path(node["uuid"], "reject")), done="rejected")


def _waiting(api: Client, out: Output, wanted: NodeSelection, does: str) -> Selection:
    """Return the selected nodes; of bulk selections, those in the inbox."""
    chosen = resolve(api, wanted, only_inbox=True)
    confirm(out, wanted, chosen, does=does, asks=True)
    return chosen


@click.command("rejected")
@with_api
def rejected(api: Client, out: Output) -> None:
    """List the MAC addresses of rejected machines."""
    rejections = api.get("/v1/rejections")["rejections"]
    rows = [
        (rejection["address"], rejection["node"], rejection["source"] or "", ago(rejection["rejected_at"]))
        for rejection in rejections
    ]
    out.show(rejections, lambda screen: screen.print(table(("MAC", "WAS NODE", "SOURCE", "REJECTED"), rows)))
    if not rejections:
        out.say("no rejected machines")


@click.command("readmit")
@click.argument("mac")
@with_api
def readmit(api: Client, out: Output, *, mac: str) -> None:
    """Allow a rejected machine, given by one of its MAC addresses, to be discovered again."""
    api.delete(f"/v1/rejections/{segment(mac)}")
    out.show({"readmitted": mac}, lambda screen: screen.print(f"{mac} can be discovered again"))


def _listing(nodes: list[Json]) -> Any:
    rows = (
        (
            node["uuid"],
            node["name"] or (f"({node['suggested_name']}?)" if node["suggested_name"] else ""),
            node["machine"] or "",
            ", ".join(node["ports"][:2]) + (" ..." if len(node["ports"]) > 2 else ""),
            short(str(next(iter(node["driver_info"].values()), ""))),
            _source(node),
            age(node["created_at"]),
            str(mapping(node["held"]).get("message") or node["last_error"] or ""),
        )
        for node in nodes
    )
    titles = ("UUID", "NAME", "MACHINE", "PORTS", "BMC", "SOURCE", "AGE", "WHY")
    return Listing(titles, rows, spare=("WHY", "PORTS", "AGE", "BMC", "SOURCE", "NAME"), wraps="MACHINE", below="WHY")


def _source(node: Json) -> str:
    """Return the machine's source address, and those of other sources that claim its MAC addresses."""
    if held := mapping(node["held"]):
        return short(str(held.get("source") or ""))
    discovery = mapping(node["discovery"])
    claims = [str(mapping(claim).get("source")) for claim in discovery.get("claims") or []]
    source = short(str(discovery.get("source") or ""))
    more = f" and {len(claims) - 2} more" if len(claims) > 2 else ""
    return f"{source} (also claimed by {', '.join(claims[:2])}{more})" if claims else source


def _machine(api: Client, uuid: str) -> str | None:
    """Return vendor, product and serial number, None if there is no inventory."""
    try:
        inventory = api.get(node_path(uuid, "inventory"))["inventory"]
    except ServiceError as exc:
        if exc.status != 404:
            raise
        return None
    vendor = mapping(mapping(inventory).get("system_vendor"))
    keys = {"vendor": "manufacturer", "product": "product_name", "serial": "serial_number"}
    return _words({name: vendor.get(key) for name, key in keys.items()})


def _words(hardware: Any) -> str | None:
    words = (mapping(hardware).get(key) for key in ("vendor", "product", "serial"))
    return " ".join(short(value) for word in words if (value := text(word))) or None
