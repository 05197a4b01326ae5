"""``ferroscope pxe ruleset | clean``: the gate before its process has begun, and after it is no longer wanted."""

from __future__ import annotations

import os
from pathlib import Path

import click

from ferroscope.cli.configured import config_option, settings_of
from ferroscope.cli.output import Output, output_option


@click.command()
@config_option
@click.option(
    "-o", "--output", "path", type=click.Path(dir_okay=False, path_type=Path),
    help="File to write, as a whole or not at all. [default: print it]",
)  # fmt: skip
def ruleset(files: tuple[str, ...], path: Path | None) -> None:
    """Make the closed gate as an nftables ruleset, to be loaded when the host starts: nft -f FILE.

    The service unit ferroscope-pxe-closed.service does so before the network comes up.
    """
    from ferroscope.runtime.life import StartError
    from ferroscope.runtime.pxe_filter import closed_ruleset

    try:
        text = closed_ruleset(settings_of(files))
    except StartError as exc:
        raise click.ClickException(str(exc)) from exc
    if path is None:
        click.echo(text, nl=False)
    else:
        _write_ruleset(path, text)
        click.echo(f"wrote {path}")


def _write_ruleset(path: Path, text: str) -> None:
    """Replace the file when the new one is on the disk: an empty one would load, and close nothing."""
    beside = path.with_name(f".{path.name}.new")
    try:
        with beside.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as exc:
        beside.unlink(missing_ok=True)
        raise click.ClickException(f"cannot write {path}: {exc.strerror}") from exc


@click.command()
@config_option
@click.option(
    "--all", "everything", is_flag=True,
    help="Also remove the nftables tables of other networks' gates whose pxe-filter does not run here.",
)  # fmt: skip
@output_option
def clean(files: tuple[str, ...], everything: bool, fmt: str) -> None:
    """Take the gate off this host: its tables, chains and files; the service behind it is then open to all.

    Stop the pxe-filter first: it would put its gate in place again.
    """
    import logging

    import msgspec
    import structlog

    from ferroscope.contracts.pxe_filter import GateError
    from ferroscope.runtime.gate_removal import remove_gate
    from ferroscope.runtime.life import StartError

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))  # the gate's own words
    try:
        removal = remove_gate(settings_of(files), everything=everything)
    except (GateError, StartError) as exc:
        raise click.ClickException(str(exc)) from exc
    out = Output(fmt)
    names = ", ".join((*removal.removed, *removal.tables))
    out.show(msgspec.to_builtins(removal), lambda screen: screen.print(f"removed: {names}"))
    for note in removal.notes:
        out.say(note)
