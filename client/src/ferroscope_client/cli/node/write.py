"""``ferroscope node create | set | delete``: enroll, change and delete nodes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

import click

from ferroscope_client.cli.lookup import find, label
from ferroscope_client.cli.node.actions import each
from ferroscope_client.cli.node.upkeep import until_when
from ferroscope_client.cli.output import Output, key_values, with_api
from ferroscope_client.cli.selection import NodeSelection, confirm, resolve, selectors
from ferroscope_client.cli.text import is_terminal
from ferroscope_client.client import Client, Json, ServiceError, node_path
from ferroscope_client.core import json_safety, labels, mac_addresses, values
from ferroscope_client.core.bmc_place import ALLOW_SHARED
from ferroscope_client.core.values import many
from ferroscope_client.enrollment.importing import pointer, set_value
from ferroscope_client.errors import Exit, Failure

# Values on the command line: ``key=text``, ``key=@file`` and ``key:=json`` pairs, and MAC addresses.
#
# All users of the host can see command lines: passwords should be read from files or from standard input.

_FROM_STANDARD_INPUT: Final = "ferroscope_client.cli.node.write.standard_input"

Command = TypeVar("Command", bound=Callable[..., Any])


def pairs(*names: str, meaning: str) -> Callable[[Command], Command]:
    """Return an option that takes pairs and may be repeated."""
    text = f"{meaning}; KEY=@FILE reads the text from a file, KEY=@- from standard input; KEY:=JSON for other types."
    text += " May be repeated."
    return click.option(*names, type=pair, metavar="KEY=TEXT", multiple=True, help=text)


def mac_option(*names: str, meaning: str) -> Callable[[Command], Command]:
    """Return an option that takes MAC addresses and may be repeated."""
    return click.option(*names, type=mac, metavar="MAC", multiple=True, help=f"{meaning}; may be repeated.")


def pair(text: str) -> tuple[str, Any]:
    """Return ``key=text``, ``key=@file`` or ``key:=json`` as key and value; ``click.BadParameter``."""
    key, equals, value = text.partition("=")
    if not equals or not key.rstrip(":"):
        raise click.BadParameter(f"invalid value {text!r}: expected KEY=TEXT or KEY:=JSON")
    if not key.endswith(":"):
        return key, _content(key, value[1:]) if value.startswith("@") else value
    try:
        return key[:-1], json_safety.decode_own(value)
    except ValueError as exc:
        raise click.BadParameter(f"invalid JSON for {key[:-1]}: {exc}") from None


def _content(key: str, file: str) -> str:
    """Return the contents of the file, without the final line break; on a terminal, ask for a secret."""
    if file == "-":
        _take_standard_input(key)
        if values.is_secret(key) and is_terminal(sys.stdin):
            return str(click.prompt(key, hide_input=True, err=True))
    try:
        with click.open_file(file, encoding="utf-8") as stream:
            content: str = stream.read()
    except (OSError, UnicodeDecodeError) as exc:
        raise click.BadParameter(
            f"cannot read the value of {key} from {file!r}: {exc}; write a text that starts with @ as {key}:='\"@...\"'"
        ) from None
    return content.removesuffix("\n")


def _take_standard_input(key: str) -> None:
    """Ensure that standard input is read only once: a second value from it would be empty."""
    context = click.get_current_context(silent=True)
    if context is None:
        return
    if _FROM_STANDARD_INPUT in context.meta:
        raise click.BadParameter(
            f"cannot read the value of {key} from standard input: it is already used for "
            f"{context.meta[_FROM_STANDARD_INPUT]}"
        )
    context.meta[_FROM_STANDARD_INPUT] = key


def label_pair(text: str) -> tuple[str, str]:
    """Return ``rack=r1`` as key and value; ``click.BadParameter``."""
    try:
        return labels.pair(text)
    except labels.LabelError as exc:
        raise click.BadParameter(str(exc)) from None


def mac(text: str) -> str:
    """Return the normalized MAC address; ``click.BadParameter``."""
    address = mac_addresses.written_mac(text)
    if address is None:
        raise click.BadParameter(f"invalid MAC address {text!r}: expected, for example, 52:54:00:12:34:56")
    return address


allow_shared_bmc: Final = click.option(
    "--allow-shared-bmc",
    "allow_shared",
    is_flag=True,
    help=f"Allow several nodes to share this BMC: sets driver_info/{ALLOW_SHARED}.",
)

_OPTIONS: Final = (
    pairs("-d", "--driver-info", "driver_info", meaning="BMC address, credentials and other driver properties"),
    allow_shared_bmc,
    pairs("-p", "--property", "properties", meaning="Property of the node"),
    click.option(
        "--label",
        "labels",
        type=label_pair,
        metavar="KEY[=VALUE]",
        multiple=True,
        help="Label, such as rack=r1; without a value it is a tag. May be repeated.",
    ),
    pairs("-e", "--extra", "extra", meaning="Additional metadata"),
    click.option("--owner", help="Owner of the node."),
    click.option("--resource-class", help="Resource class."),
    click.option("--description", help="Description."),
    click.option("--inspect-interface", help="Inspect interface: agent (a ramdisk), or the driver's, such as redfish."),
    click.option("--boot-interface", help="Boot interface: pxe, ipxe, or for example redfish-virtual-media."),
    click.option(
        "--disable-power-off/--enable-power-off", default=None, help="Never power off the machine, only reboot it."
    ),
)
_MAX_NAMED: Final = 10
_REASONS: Final = {"maintenance": "maintenance_reason", "retired": "retired_reason"}


def _node_options(command: Command) -> Command:
    """Add the options that ``create`` and ``set`` share."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@click.command("create")
@click.argument("name", required=False)
@click.option("--driver", help="BMC driver; 'ferroscope driver list' lists the enabled ones.")
@mac_option("--port", "ports", meaning="MAC address of a NIC")
@_node_options
@click.option("--uuid", help="UUID of the node; by default generated.")
@with_api
def create(
    api: Client,
    out: Output,
    *,
    name: str | None,
    driver: str | None,
    ports: tuple[str, ...],
    allow_shared: bool,
    **fields: Any,
) -> None:
    """Enroll a node with its ports; on an error, nothing is created."""
    if driver is None:
        offered = ", ".join(driver["name"] for driver in api.get("/v1/drivers")["drivers"]) or "none"
        raise click.UsageError(f"missing --driver; enabled drivers: {offered}")
    if name is None and not ports and not fields["uuid"]:
        raise click.UsageError("a NAME, --port or --uuid is required to identify the node")
    fields |= {document: dict(fields[document]) for document in ("driver_info", "properties", "extra", "labels")}
    if allow_shared:
        fields["driver_info"][ALLOW_SHARED] = True
    body = {key: value for key, value in {"name": name, "driver": driver, **fields}.items() if value}
    node = create_with_ports(api, body, ports)
    shown = {"Name": node["name"], "UUID": node["uuid"], "State": node["provision_state"], "Ports": list(ports)}
    out.show(node, lambda screen: screen.print(key_values(shown)))
    if not out.for_programs:
        _say_what_is_next(api, out, node)


def create_with_ports(api: Client, fields: Json, macs: Iterable[str]) -> Json:
    """Create a node with its ports, and return it; on a ``Failure`` nothing is created."""
    node = api.post("/v1/nodes", fields)
    node["ports"] = _add_ports(api, node, macs)
    return node


def _say_what_is_next(api: Client, out: Output, node: Json) -> None:
    missing = api.get(node_path(node["uuid"], "validate"))["management"]
    if missing["result"] is False:
        out.say(f"incomplete: {missing['reason']}")
        out.say(f"next: ferroscope node set {label(node)} -d KEY=VALUE (ferroscope driver properties {node['driver']})")
        return
    if missing.get("reason"):
        out.say(f"note: {missing['reason']}")
    out.say(f"next: ferroscope node manage {label(node)} --wait, then: ferroscope inspect {label(node)} --watch")


def _say_what_is_odd(api: Client, out: Output, nodes: list[Json], fields: dict[str, Any]) -> None:
    """Point out fields of driver_info that the first node's driver does not read: they are probably misspelled."""
    if nodes and fields["driver_info"]:
        checked = api.get(node_path(nodes[0]["uuid"], "validate"))["management"]
        if checked["result"] and checked.get("reason"):
            out.say(f"note: {checked['reason']}")


def _add_ports(api: Client, node: Json, ports: Iterable[str]) -> list[Json]:
    try:
        return [ensure_port(api, node["uuid"], mac) for mac in dict.fromkeys(ports)]
    except Failure as exc:
        code = Exit(exc.exit_code)
        try:
            api.delete(node_path(node["uuid"]))
        except Failure as second:
            advice = f"the node was created without some of its ports: ferroscope node delete {label(node)}"
            raise Failure(f"{exc.message} ({second.message})", exit_code=code, advice=advice) from None
        raise Failure(f"{exc.message} The node was not created.", exit_code=code, advice=exc.advice) from None


def create_port(api: Client, node: str, mac: str) -> Json:
    """Create a port; on a conflict, the ``Failure`` names the node that has the MAC address."""
    try:
        return api.post("/v1/ports", {"node_uuid": node, "address": mac})
    except ServiceError as exc:
        if exc.status != 409:
            raise
        owner = _owner(api, mac)
        if owner is None:
            raise
        raise Failure(
            f"MAC address {mac} is already in use by node {owner}.",
            exit_code=Exit.CONFLICT,
            advice=f"ferroscope node show {owner}",
        ) from None


def ensure_port(api: Client, node: str, mac: str) -> Json:
    """Create a port unless the node has it: the same import, started twice, may have created it a moment ago."""
    try:
        return create_port(api, node, mac)
    except Failure:
        there = api.get("/v1/ports/detail", address=mac)["ports"]
        if not there or there[0]["node_uuid"] != node:
            raise
        return there[0]


def _owner(api: Client, mac: str) -> str | None:
    ports = api.get("/v1/ports", address=mac, fields=("node_uuid",))["ports"]
    return label(api.get(node_path(ports[0]["node_uuid"]), fields=("uuid", "name"))) if ports else None


@click.command("set", epilog="--name and ports can be set for one node only; all other options for many nodes.")
@selectors
@click.option("--name", help="New name.")
@click.option("--driver", help="New BMC driver.")
@_node_options
@click.option("--maintenance/--no-maintenance", default=None, help="Set or clear maintenance.")
@click.option(
    "--not-protected", "protected", is_flag=True, flag_value=False, default=None, help="Allow the node to be deleted."
)
@click.option("--retired/--not-retired", default=None, help="Mark as retired, or not.")
@click.option("--reason", metavar="TEXT", help="Reason for --maintenance or --retired.")
@click.option(
    "--until",
    metavar="TIME",
    callback=until_when,
    help="When --maintenance ends automatically: 8h, 3d, or an ISO 8601 time.",
)
@click.option("--unset-label", metavar="KEY", multiple=True, help="Remove a label, if present.")
@click.option("--unset", metavar="FIELD[/KEY]", multiple=True, help="Remove, for example owner or driver_info/old.")
@mac_option("--add-port", meaning="Add a port with this MAC address")
@mac_option("--remove-port", meaning="Remove the port with this MAC address")
@with_api
def set_node(
    api: Client,
    out: Output,
    *,
    wanted: NodeSelection,
    reason: str | None,
    until: str | None,
    unset: tuple[str, ...],
    unset_label: tuple[str, ...],
    add_port: tuple[str, ...],
    remove_port: tuple[str, ...],
    allow_shared: bool,
    **fields: Any,
) -> None:
    """Change nodes. If one change to a node is rejected, that node does not change."""
    explained = [field for field in _REASONS if fields[field]]
    if reason is not None and not explained:
        raise click.UsageError("--reason requires --maintenance or --retired")
    if until is not None and not fields["maintenance"]:
        raise click.UsageError("--until requires --maintenance")
    fields |= {_REASONS[field]: reason for field in explained if field != "maintenance"}
    if allow_shared:
        fields["driver_info"] = (*fields["driver_info"], (ALLOW_SHARED, True))
    changes = [*_additions(fields), *(_removal(*path.strip("/").split("/", 1)) for path in unset)]
    done = len(changes) + len(unset_label) + len(add_port) + len(remove_port)
    if not done:
        raise click.UsageError("nothing to change: use at least one option; see ferroscope node set --help")
    chosen = resolve(api, wanted, inbox=True)
    if (chosen.bulk or len(chosen.found) > 1) and (fields["name"] or add_port or remove_port):
        raise click.UsageError("--name, --add-port and --remove-port can be used with one node only")
    confirm(out, wanted, chosen, does="change", asks=True)

    def act(node: Json) -> None:
        present = find(api, node["uuid"], fields=("labels",))["labels"] if unset_label else {}
        leaving = [_removal("labels", key) for key in unset_label if key in present]
        _change_node(api, node["uuid"], [*changes, *leaving], add_port, remove_port)
        if fields["maintenance"] and (reason is not None or until is not None):
            body = {"reason": reason, "until": until}
            api.put(node_path(node["uuid"], "maintenance"), {name: text for name, text in body.items() if text})

    if chosen.bulk or len(chosen.found) != 1:
        _say_what_is_odd(api, out, each(out, chosen, act, done="changed"), fields)
        return
    for failure in chosen.failures.values():
        raise failure
    (chosen_node,) = chosen.nodes
    act(chosen_node)
    node = find(api, chosen_node["uuid"], fields=None)
    out.show(node, lambda screen: screen.print(f"{label(node)}: {done} {'change' if done == 1 else 'changes'} made"))
    _say_what_is_odd(api, out, [node], fields)


def _change_node(
    api: Client, uuid: str, changes: list[Json], add_port: tuple[str, ...], remove_port: tuple[str, ...]
) -> None:
    leaving = [_port_of(api, uuid, mac) for mac in remove_port]
    added: list[Json] = []
    try:
        for mac in add_port:
            added.append(create_port(api, uuid, mac))  # not a comprehension: the clean-up needs those created
        if changes:
            api.patch(node_path(uuid), changes)
    except Failure:
        for port in added:
            api.delete(f"/v1/ports/{port['uuid']}")
        raise
    for port in leaving:
        api.delete(f"/v1/ports/{port}")


def _additions(fields: dict[str, Any]) -> list[Json]:
    changes = []
    for name, value in fields.items():
        if isinstance(value, tuple):
            changes += [set_value(name, key, value=item) for key, item in value]
        elif value is not None:
            changes.append(set_value(name, value=value))
    return changes


def _removal(*path: str) -> Json:
    return {"op": "remove", "path": pointer(*path)}


def _port_of(api: Client, node: str, mac: str) -> str:
    """Return the UUID of the node's port with this MAC address; ``Failure``."""
    matching = api.get("/v1/ports", address=mac, fields=("uuid", "node_uuid"))["ports"]
    if not matching or matching[0]["node_uuid"] != node:
        raise Failure(f"the node has no port with the MAC address {mac}", exit_code=Exit.NOT_FOUND)
    return str(matching[0]["uuid"])


@click.command(
    "delete",
    epilog="On a terminal it asks first, unless --yes. Without a terminal, named nodes are deleted without a question, "
    "as kubectl does, and patterns, labels, --state and --failed require --yes.",
)
@selectors
@with_api
def delete(api: Client, out: Output, *, wanted: NodeSelection) -> None:
    """Delete nodes with their ports, inspections and data."""
    if wanted.everything:
        raise click.UsageError("--all is not supported by delete; use a pattern such as '*'")
    chosen = resolve(api, wanted, inbox=True)
    confirm(out, wanted, chosen, does="delete all data of", asks=False)
    names = [label(node) for node in chosen.nodes]
    if names and chosen.bulk and not wanted.yes and not is_terminal(sys.stdin):
        raise Failure(
            f"{many(len(names), 'node')} would be deleted with all data",
            exit_code=Exit.USAGE,
            advice="to delete them without confirmation, add --yes; to list them, --dry-run",
        )
    if names and not wanted.yes and is_terminal(sys.stdin):
        more = f" ... ({many(len(names), 'node')})" if len(names) > _MAX_NAMED else ""
        click.confirm(f"Delete {', '.join(names[:_MAX_NAMED])}{more} with all data?", abort=True, err=True)
    each(out, chosen, _deleting(api), done="deleted")


def _deleting(api: Client) -> Callable[[Json], object]:
    return lambda node: api.delete(node_path(node["uuid"]))
