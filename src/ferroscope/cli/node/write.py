"""``ferroscope node create | set | delete``: enrol, change and forget nodes."""

from __future__ import annotations

import sys
from typing import Any, Final

import click

from ferroscope.cli.client import Api, Json, node_path
from ferroscope.cli.exits import Exit, Failure
from ferroscope.cli.lookup import find, label, node_argument, nodes_argument
from ferroscope.cli.node.bulk import each
from ferroscope.cli.node.values import Command, mac_option, pairs
from ferroscope.cli.output import Output, facts, with_api

_OPTIONS: Final = (
    pairs("-d", "--driver-info", "driver_info", what="How its BMC is reached"),
    pairs("-p", "--property", "properties", what="A property"),
    pairs("-e", "--extra", "extra", what="Anything else that is to be kept with it"),
    click.option("--owner", help="Who owns it."),
    click.option("--resource-class", help="Its resource class."),
    click.option("--description", help="What people should know of it."),
)


def _node_options(command: Command) -> Command:
    """Add what can be said of a node both when it is enrolled and later."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@click.command("create")
@click.argument("name", required=False)
@click.option("--driver", default="fake-hardware", show_default=True, help="How its BMC is spoken to.")
@mac_option("--port", "ports", what="MAC address of a NIC")
@_node_options
@click.option("--uuid", help="Its UUID; by default a new one.")
@with_api
def create(api: Api, out: Output, *, name: str | None, ports: tuple[str, ...], **fields: Any) -> None:
    """Enrol a node, with its ports: all of it or nothing."""
    fields |= {document: dict(fields[document]) for document in ("driver_info", "properties", "extra")}
    node = api.post("/v1/nodes", {key: value for key, value in {"name": name, **fields}.items() if value})
    node["ports"] = _add_ports(api, node, ports)
    shown = {"Name": node["name"], "UUID": node["uuid"], "State": node["provision_state"], "Ports": list(ports)}
    out.show(node, lambda screen: screen.print(facts(shown)))
    if not out.for_programs:
        out.say(f"next: ferroscope inspect {label(node)} --watch")


def _add_ports(api: Api, node: Json, ports: tuple[str, ...]) -> list[Json]:
    try:
        return [api.post("/v1/ports", {"node_uuid": node["uuid"], "address": mac}) for mac in dict.fromkeys(ports)]
    except Failure as exc:
        code = Exit(exc.exit_code)
        try:
            api.delete(node_path(node["uuid"]))
        except Failure as second:
            advice = f"the node was created without all its ports: ferroscope node delete {label(node)}"
            raise Failure(f"{exc.message} ({second.message})", exit_code=code, advice=advice) from None
        raise Failure(f"{exc.message} The node was not created.", exit_code=code, advice=exc.advice) from None


@click.command("set")
@node_argument
@click.option("--name", help="Give it another name.")
@click.option("--driver", help="Give it another driver.")
@_node_options
@click.option("--maintenance/--no-maintenance", default=None, help="Begin or end maintenance.")
@click.option("--unset", metavar="FIELD[/KEY]", multiple=True, help="Remove, for example owner or driver_info/old.")
@mac_option("--add-port", what="Add a NIC")
@mac_option("--remove-port", what="Remove a NIC")
@with_api
def set_node(
    api: Api,
    out: Output,
    *,
    ident: str,
    unset: tuple[str, ...],
    add_port: tuple[str, ...],
    remove_port: tuple[str, ...],
    **fields: Any,
) -> None:
    """Change a node; what is not named stays as it is. Where one change is refused, none is made."""
    changes = [*_additions(fields), *(_change("remove", *path.strip("/").split("/", 1)) for path in unset)]
    done = len(changes) + len(add_port) + len(remove_port)
    if not done:
        raise click.UsageError("nothing to change: name at least one option; see ferroscope node set --help")
    uuid = find(api, ident)["uuid"]
    leaving = [_port_of(api, uuid, mac) for mac in remove_port]
    added: list[Json] = []
    try:
        for mac in add_port:
            added.append(
                api.post("/v1/ports", {"node_uuid": uuid, "address": mac})
            )  # those that were made are known if one fails
        if changes:
            api.patch(node_path(uuid), changes)
    except Failure:
        for port in added:
            api.delete(f"/v1/ports/{port['uuid']}")
        raise
    for port in leaving:
        api.delete(f"/v1/ports/{port}")
    node = find(api, uuid, fields=None)
    out.show(node, lambda screen: screen.print(f"{label(node)}: {done} {'change' if done == 1 else 'changes'} made"))


def _additions(fields: dict[str, Any]) -> list[Json]:
    changes = []
    for name, value in fields.items():
        if isinstance(value, tuple):
            changes += [_change("add", name, key, value=item) for key, item in value]
        elif value is not None:
            changes.append(_change("add", name, value=value))
    return changes


def _change(op: str, *path: str, value: Any = None) -> Json:
    pointer = "".join(f"/{part.replace('~', '~0').replace('/', '~1')}" for part in path)
    return {"op": op, "path": pointer} if op == "remove" else {"op": op, "path": pointer, "value": value}


def _port_of(api: Api, node: str, mac: str) -> str:
    """Return the UUID of the node's port with this MAC address; ``Failure``."""
    found = api.get("/v1/ports", address=mac, fields=("uuid", "node_uuid"))["ports"]
    if not found or found[0]["node_uuid"] != node:
        raise Failure(f"the node has no port with the MAC address {mac}", exit_code=Exit.NOT_FOUND)
    return str(found[0]["uuid"])


@click.command("delete")
@nodes_argument
@click.option("-y", "--yes", is_flag=True, help="Do not ask; without a terminal nothing is ever asked.")
@with_api
def delete(api: Api, out: Output, *, idents: tuple[str, ...], yes: bool) -> None:
    """Delete nodes with their ports, inspections and data."""
    if not yes and sys.stdin.isatty():
        click.confirm(f"Delete {', '.join(idents)} with all data?", abort=True, err=True)
    each(api, out, idents, lambda node: api.delete(node_path(node["uuid"])), done="deleted")
