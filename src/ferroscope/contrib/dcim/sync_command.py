"""``ferroscope sync nautobot`` and ``sync netbox``: bring the devices of a DCIM in step with the machines."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import click
import msgspec

from ferroscope.contrib.dcim import machines
from ferroscope.contrib.dcim.dialects import NAUTOBOT, NETBOX, DcimDialect
from ferroscope.contrib.dcim.machines import DcimMachine
from ferroscope.contrib.dcim.rest import DcimError, RestClient
from ferroscope.contrib.dcim.sync import DevicePlacement, Sync
from ferroscope.contrib.dcim.writer import REFUSED, Report
from ferroscope_client.cli.output import Group, Output, with_api
from ferroscope_client.cli.screen import progress
from ferroscope_client.cli.selection import selector_option
from ferroscope_client.client import Client, ServiceError, is_url, node_path
from ferroscope_client.core import values
from ferroscope_client.core.host_spelling import refusal_of_urls
from ferroscope_client.core.values import many
from ferroscope_client.errors import Exit, Failure

_Decorated = Callable[[Callable[..., None]], Callable[..., None]]


@click.group(cls=Group)
def sync() -> None:
    """Keep the devices of NetBox or Nautobot up to date."""


def _options(dialect: DcimDialect) -> _Decorated:
    """Return the options, which differ only in the DCIM's name."""
    name, lower, upper = dialect.name, dialect.name.lower(), dialect.name.upper()
    place = f"Name of the {dialect.place} of the devices; other devices are left alone."
    options = [
        click.option("dcim_url", f"--{lower}-url", envvar=f"{upper}_URL", show_envvar=True, required=True,
                     help=f"URL of the {name}."),
        click.option("dcim_token", f"--{lower}-token", default=f"secret://env/{upper}_TOKEN", show_default=True,
                     metavar="secret://...",
                     help="Where its API token is."),
        click.option("place", f"--{dialect.place}", required=True, help=place),
        click.option("--role", required=True, help="Name of the role of new devices."),
        click.option("--status", default=dialect.default_status, show_default=True, help="Status of new devices."),
        click.option("--timeout", type=click.FloatRange(min=1), default=30.0, show_default=True,
                     help="Seconds for a call."),
        click.option("insecure", f"--insecure-{lower}", is_flag=True,
                     help="Allow the token to be sent over plain HTTP to another host."),
        click.option("--dry-run", is_flag=True, help="Only show what would be written."),
    ]  # fmt: skip

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def _epilog(dialect: DcimDialect) -> str:
    upper = dialect.name.upper()
    return (
        f"The token is given by reference: secret://env/{upper}_TOKEN, or secret://file/PATH for the file /PATH. "
        "-o json and yaml print one object: changes, what was left alone (left), and the number of machines without a "
        f"name, an inventory or a known model (left_out). Exit code 1: {dialect.name} has refused an object, or a call "
        "failed; what was written stays, and the next run continues."
    )


@sync.command(epilog=_epilog(NAUTOBOT))
@_options(NAUTOBOT)
@selector_option
@with_api
def nautobot(api: Client, out: Output, **options: Any) -> None:
    """Create and update the devices in Nautobot to match the last inspections.

    It writes manufacturers, device types, devices, interfaces with MAC addresses, inventory items for disks and DIMMs,
    and cables that LLDP shows, if both ends exist and are free. It changes only the name, serial number and type of a
    device, the MAC address of an interface, and the part, serial number and manufacturer of an inventory item that it
    has created. It deletes nothing, and says what it has left alone.
    """
    _sync(NAUTOBOT, api, out, **options)


@sync.command(epilog=_epilog(NETBOX))
@_options(NETBOX)
@selector_option
@with_api
def netbox(api: Client, out: Output, **options: Any) -> None:
    """Create and update the devices in NetBox to match the last inspections.

    It writes manufacturers, device types, devices, interfaces with primary MAC addresses, inventory items for disks and
    DIMMs, and cables that LLDP shows, if both ends exist and are free. It changes only the name, serial number and type
    of a device, the MAC address of an interface, and the part, serial number and manufacturer of an inventory item that
    it has created. It deletes nothing, and says what it has left alone.
    """
    _sync(NETBOX, api, out, **options)


def _sync(
    dialect: DcimDialect,
    api: Client,
    out: Output,
    *,
    dcim_url: str,
    dcim_token: str,
    place: str,
    role: str,
    status: str,
    timeout: float,
    insecure: bool,
    dry_run: bool,
    selector: str | None,
) -> None:
    _check(dialect, dcim_url, insecure=insecure)
    client = RestClient(dcim_url, _resolve_token(dialect, dcim_token), dialect, threading.Event(), seconds=timeout)
    unknown: list[str] = []
    try:
        with progress("Comparing" if dry_run else "Syncing") as advance:
            client.check()
            run = Sync(client, dialect, DevicePlacement(place, role, status), dry_run=dry_run)
            report = run.run(_machines(api, selector, unknown, advance), _names(api))
    except DcimError as exc:
        raise Failure(str(exc), advice=_advice(dialect, exc)) from None
    out.show(msgspec.to_builtins(report) | {"left_out": len(unknown)}, lambda screen: _draw(screen, report))
    if not out.for_programs:
        out.say(f"{many(len(report.changes), 'change')}{' to make' if dry_run else ''}")
        if unknown:
            out.say(f"left out: {many(len(unknown), 'machine')} without a name, an inventory, or a known model")
    if any(left.code == REFUSED for left in report.left):
        raise Failure(f"{dialect.name} has refused objects", advice="correct the cause, and run it again")


def _advice(dialect: DcimDialect, error: DcimError) -> str:
    if error.status in (401, 403):
        return (
            f"check --{dialect.name.lower()}-token: its user must be allowed to view, add and change the synced objects"
        )
    return "the changes made so far remain; run it again to continue"


def _check(dialect: DcimDialect, url: str, *, insecure: bool) -> None:
    """Raise ``UsageError`` for an invalid URL, or one to which the token would be sent for others to read."""
    if not is_url(url):
        raise click.UsageError(f'invalid URL "{url}": expected https://HOST[:PORT]')
    if why := refusal_of_urls(url):
        raise click.UsageError(f'invalid URL "{url}": {why}')
    parts = urlsplit(url)
    if parts.scheme == "http" and not insecure and not values.is_loopback(parts.hostname or ""):
        allowed = f"--insecure-{dialect.name.lower()}"
        raise click.UsageError(f"the token would be sent over plain HTTP: use https://, or {allowed}")


def _resolve_token(dialect: DcimDialect, reference: str) -> str:
    """Return the token. The limits of ``[secrets]`` are for callers of the API, so they do not apply here."""
    from ferroscope.contracts.plugins import SecretOptions, SecretSourceError
    from ferroscope.secrets.references import Resolver, load_sources
    from ferroscope_client.core.passwords import REFERENCE
    from ferroscope_client.installed import PluginError

    option, upper = f"--{dialect.name.lower()}-token", dialect.name.upper()
    source = reference.removeprefix(REFERENCE).partition("/")[0]
    if not reference.startswith(REFERENCE):  # it may be a token: do not repeat it
        raise click.UsageError(
            f"{option} must be a reference, such as secret://env/{upper}_TOKEN, not the token itself"
        )
    try:
        sources = load_sources([source], SecretOptions(file_directory="/", env_prefix=upper))
        return Resolver(sources).resolve(reference).strip()
    except (PluginError, SecretSourceError) as exc:
        raise Failure(f"cannot resolve {option}: {exc}", exit_code=Exit.USAGE) from None


def _names(api: Client) -> Iterator[str]:
    """Yield the names of all nodes, also of those that are not synced."""
    for node in api.pages("/v1/nodes", "nodes", fields=("uuid", "name")):
        if node["name"]:
            yield node["name"]


def _machines(
    api: Client, selector: str | None, unknown: list[str], advance: Callable[[int], None]
) -> Iterator[DcimMachine]:
    """Yield the machines that were inspected; add the UUIDs of the others to ``unknown``."""
    for node in api.pages("/v1/nodes", "nodes", fields=("uuid", "name"), inbox=False, labels=selector):
        try:
            inventory = api.get(node_path(node["uuid"], "inventory"))
        except ServiceError as exc:
            if exc.status != 404:
                raise
            inventory = {}
        machine = machines.machine(node, inventory.get("inventory"), inventory.get("plugin_data"))
        if machine is None:
            unknown.append(node["uuid"])
        else:
            yield machine
        advance(1)


def _draw(screen: Any, report: Report) -> None:
    for change in report.changes:
        if change.before is None:
            screen.print(values.clean(f"+ {change.kind} {change.name}"))
            continue
        for field, value in change.after.items():
            screen.print(values.clean(f"~ {change.kind} {change.name}: {field}: {change.before[field]} -> {value}"))
    for left in report.left:
        screen.print(values.clean(f"! {left.kind} {left.name}: left alone: {left.why} ({left.code})"))
