"""``ferroscope sync nautobot``: bring the devices of a Nautobot in step with the machines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import click
import msgspec

from ferroscope.cli.client import Api, ApiError, is_url, node_path
from ferroscope.cli.exits import Exit, Failure
from ferroscope.cli.output import Group, Output, with_api
from ferroscope.cli.selection import selector_option
from ferroscope.cli.text import many
from ferroscope.core import values
from ferroscope.dcim import machines
from ferroscope.dcim.machines import Machine
from ferroscope.dcim.rest import DcimError, RestClient
from ferroscope.dcim.sync import Change, Sync


@click.group(cls=Group)
def sync() -> None:
    """Keep other systems in step with machines."""


@sync.command(
    epilog="TOKEN is a reference: secret://env/NAUTOBOT_TOKEN, or secret://file/PATH for the file /PATH. Exit code 1: "
    "a call of Nautobot failed; what was written before stays, and the next run continues."
)
@click.option("--nautobot-url", envvar="NAUTOBOT_URL", show_envvar=True, required=True, help="URL of the Nautobot.")
@click.option(
    "--nautobot-token", default="secret://env/NAUTOBOT_TOKEN", show_default=True, help="Where its API token is."
)
@click.option("--location", required=True, help="Name of the location of the devices; other devices are left alone.")
@click.option("--role", required=True, help="Name of the role of new devices.")
@click.option("--status", default="Active", show_default=True, help="Status of new devices.")
@click.option("--timeout", type=click.FloatRange(min=1), default=30.0, show_default=True, help="Seconds for a call.")
@click.option("--insecure-nautobot", is_flag=True, help="Allow the token to be sent over plain HTTP to another host.")
@click.option("--dry-run", is_flag=True, help="Only show what would be written.")
@selector_option
@with_api
def nautobot(
    api: Api,
    out: Output,
    *,
    nautobot_url: str,
    nautobot_token: str,
    location: str,
    role: str,
    status: str,
    timeout: float,
    insecure_nautobot: bool,
    dry_run: bool,
    selector: str | None,
) -> None:
    """Create and change the devices of a Nautobot as the last inspections found the machines.

    It writes manufacturers, device types, devices, interfaces with MAC addresses, inventory items for disks and DIMMs,
    and cables that LLDP shows, if both ends exist and are free. It changes only the name, serial number and type of a
    device, the MAC address of an interface, and the part, serial number and manufacturer of an inventory item. It
    deletes nothing.
    """
    _check(nautobot_url, insecure=insecure_nautobot)
    client = RestClient(nautobot_url, _resolved(nautobot_token), seconds=timeout)
    unknown: list[str] = []
    try:
        changes = Sync(client, location=location, role=role, status=status, dry_run=dry_run).run(
            _machines(api, selector, unknown), _names(api)
        )
    except DcimError as exc:
        raise Failure(str(exc), advice="what was written stays; run it again to continue") from None
    out.show([msgspec.to_builtins(one) for one in changes], lambda screen: _draw(screen, changes))
    if not out.for_programs:
        out.say(f"{many(len(changes), 'change')}{' to make' if dry_run else ''}")
        if unknown:
            out.say(f"left out: {many(len(unknown), 'machine')} without a name, an inventory, or a known model")


def _check(url: str, *, insecure: bool) -> None:
    """Raise ``UsageError`` for an invalid URL, or one to which the token would be sent for others to read."""
    if not is_url(url):
        raise click.UsageError(f'invalid URL "{url}": expected https://HOST[:PORT]')
    parts = urlsplit(url)
    if parts.scheme == "http" and not insecure and not values.is_loopback(parts.hostname or ""):
        raise click.UsageError("the token would be sent over plain HTTP: use https://, or --insecure-nautobot")


def _resolved(reference: str) -> str:
    """Return the token. The sources of ``[secrets]`` are restricted for callers of the API, which this is not."""
    from ferroscope.config.plugins import PluginError
    from ferroscope.contracts.secrets import SecretOptions, SecretSourceError
    from ferroscope.core.secrets import REFERENCE
    from ferroscope.secrets.references import Resolver, load_sources

    source = reference.removeprefix(REFERENCE).partition("/")[0]
    if not reference.startswith(REFERENCE):  # it may be a token: do not repeat it
        raise click.UsageError(
            "--nautobot-token must be a reference, such as secret://env/NAUTOBOT_TOKEN, not the token itself"
        )
    try:
        sources = load_sources([source], SecretOptions(file_directory="/", env_prefix="NAUTOBOT"))
        return Resolver(sources).resolve(reference).strip()
    except (PluginError, SecretSourceError) as exc:
        raise Failure(f"cannot resolve --nautobot-token: {exc}", exit_code=Exit.USAGE) from None


def _names(api: Api) -> Iterator[str]:
    """Yield the names of all nodes, also of those that are not synced."""
    for node in api.pages("/v1/nodes", "nodes", fields=("uuid", "name")):
        if node["name"]:
            yield node["name"]


def _machines(api: Api, selector: str | None, unknown: list[str]) -> Iterator[Machine]:
    """Yield the machines that were inspected; add the UUIDs of the others to ``unknown``."""
    for node in api.pages("/v1/nodes", "nodes", fields=("uuid", "name"), inbox=False, labels=selector):
        try:
            found = api.get(node_path(node["uuid"], "inventory"))
        except ApiError as exc:
            if exc.status != 404:
                raise
            found = {}
        machine = machines.machine(node, found.get("inventory"), found.get("plugin_data"))
        if machine is None:
            unknown.append(node["uuid"])
        else:
            yield machine


def _draw(screen: Any, changes: list[Change]) -> None:
    for one in changes:
        if one.before is None:
            screen.print(values.clean(f"+ {one.kind} {one.name}"))
            continue
        for field, value in one.after.items():
            screen.print(values.clean(f"~ {one.kind} {one.name}: {field}: {one.before[field]} -> {value}"))
