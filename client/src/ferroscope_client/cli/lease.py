"""``ferroscope lease list | show | run``: leases of any program; the entry point of a container that leads."""

from __future__ import annotations

import os
import socket
from typing import Any, Final

import click

from ferroscope_client.cli.output import (
    Group,
    Output,
    cloud_option,
    insecure_option,
    key_values,
    table,
    url_option,
    with_api,
    with_api_and_lists,
)
from ferroscope_client.errors import Exit, Failure

_KEYS: Final = ("name", "holder", "epoch", "remaining", "duration", "own")
_NOT_FOUND: Final = 127  # as shells say it
_NOT_EXECUTABLE: Final = 126


@click.group(cls=Group)
def lease() -> None:
    """List leases, and run a command while holding one."""


@lease.command("list")
@click.option("--prefix", default="", help="Only names that begin with this prefix.")
@with_api_and_lists
def list_leases(api: Any, out: Output, prefix: str) -> None:
    """List the leases with their holders, including those of Ferroscope itself."""
    leases = api.get("/v1/leases", prefix=prefix)
    cells = [[row[key] for key in _KEYS] for row in leases["leases"]]
    titles = tuple(key.upper() for key in _KEYS)
    if not out.rows(titles, cells):
        out.show(leases, lambda screen: screen.print(table(titles, cells)))


@lease.command()
@click.argument("name")
@with_api
def show(api: Any, out: Output, name: str) -> None:
    """Show a lease: its holder, epoch, remaining seconds, and who is waiting for it."""
    from urllib.parse import quote

    lease = api.get(f"/v1/leases/{quote(name)}")
    waiting = ", ".join(candidate["holder"] for candidate in lease.get("candidates", ()))
    out.show(lease, lambda screen: screen.print(key_values(lease | {"candidates": waiting})))


@lease.command(
    context_settings={"ignore_unknown_options": True},
    epilog="Exit code: COMMAND's own; 128 + signal if one killed it; 75: the lease was lost; 0: stopped by SIGTERM.",
)
@click.option(
    "--duration",
    type=click.FloatRange(1, 86400),
    default=6.0,
    show_default=True,
    help="Duration of the lease in seconds.",
)
@click.option(
    "--grace",
    type=click.FloatRange(0),
    default=5.0,
    show_default=True,
    help="Maximum seconds between SIGTERM and SIGKILL.",
)
@click.option("--holder", default="", help="Name of this holder. [default: HOST:PID]")
@url_option
@cloud_option
@insecure_option
@click.argument("name")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_context
def run(
    ctx: click.Context,
    duration: float,
    grace: float,
    holder: str,
    url: str | None,
    cloud: str | None,
    insecure_http: bool,
    name: str,
    command: tuple[str, ...],
) -> None:
    """Wait for the lease NAME, and run COMMAND while holding it.

    The command gets LEASE_NAME, LEASE_EPOCH, and FERROSCOPE_IF_LEASE, with which the calls of other ferroscope commands
    are refused once the lease has another holder. It gets the signals that this process gets, and ends before another
    holder can have the lease: by SIGTERM, then SIGKILL.
    """
    from ferroscope_client.client import connect
    from ferroscope_lease import LeaseError, Leases
    from ferroscope_lease.run import LeaseRunner, say

    api = connect(url, cloud=cloud, insecure_http=insecure_http)
    runner = LeaseRunner(say)
    runner.start()
    try:
        leases = Leases(api.url, headers=lambda: api.credential_headers, context=api.tls_context())
        try:
            held = leases.wait(
                name, duration, holder=holder or f"{socket.gethostname()}:{os.getpid()}", stop=runner.stop, waiting=say
            )
        except LeaseError as exc:
            raise Failure(str(exc), exit_code=Exit.FAILURE) from None
        if held is None:
            return
        say(f"leading {name} in epoch {held.epoch}")
        environment = {key: value for key, value in os.environ.items() if key != "FERROSCOPE_TOKEN"}
        environment |= {
            "LEASE_NAME": name, "LEASE_EPOCH": str(held.epoch), "FERROSCOPE_IF_LEASE": held.if_lease["If-Lease"],
        }  # fmt: skip
        try:
            code = runner.run(held, command, environment, grace)
        except OSError as exc:
            say(f"cannot run {command[0]}: {exc.strerror}")
            code = _NOT_FOUND if isinstance(exc, FileNotFoundError) else _NOT_EXECUTABLE
        held.release()
    finally:
        runner.close()
    ctx.exit(code)
