"""``ferroscope pxe ruleset | clean``: the gate before its process has begun, and after it is no longer wanted."""

from __future__ import annotations

import click

from ferroscope.cli.configured import config_option, settings_of
from ferroscope.cli.output import Output, output_option


@click.command()
@config_option
def ruleset(files: tuple[str, ...]) -> None:
    """Print the closed gate as an nftables ruleset, to be loaded when the host starts: nft -f FILE.

    The service unit ferroscope-pxe-closed.service does so before the network comes up.
    """
    from ferroscope.runtime.life import StartError
    from ferroscope.runtime.pxe_filter import closed_ruleset

    try:
        click.echo(closed_ruleset(settings_of(files)), nl=False)
    except StartError as exc:
        raise click.ClickException(str(exc)) from exc


@click.command()
@config_option
@output_option
def clean(files: tuple[str, ...], fmt: str) -> None:
    """Take the gate off this host: its tables, chains and files; the service behind it is then open to all.

    Stop the pxe-filter first: it would put its gate in place again.
    """
    from ferroscope.ports.gate import GateError
    from ferroscope.runtime.life import StartError
    from ferroscope.runtime.pxe_filter import remove_gate

    try:
        removed = remove_gate(settings_of(files))
    except (GateError, StartError) as exc:
        raise click.ClickException(str(exc)) from exc
    out = Output(fmt)
    out.show({"removed": removed}, lambda screen: screen.print(f"removed: {', '.join(removed)}"))
