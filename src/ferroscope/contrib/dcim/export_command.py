"""``ferroscope export FORMAT``: write the whole fleet, or a part of it, for other programs."""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import click

from ferroscope.contracts.plugins import Exporter, ExportError, ExportOptions
from ferroscope.contrib.dcim.exporters import loader
from ferroscope_client.cli.output import cloud_option, insecure_option, url_option
from ferroscope_client.cli.screen import progress
from ferroscope_client.cli.selection import StateType, selector_option
from ferroscope_client.client import Json, connect
from ferroscope_client.errors import Failure


def _complete_formats(_context: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in loader.names() if name.startswith(incomplete)]


@click.command(epilog="Machines in the inbox are not exported.")
@click.argument("fmt", metavar="FORMAT", shell_complete=_complete_formats)
@click.option(
    "--output",
    "file",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    default="-",
    help="Write to this file, which is replaced when the export is complete. [default: standard output]",
)
@click.option(
    "-p",
    "--parameter",
    "parameters",
    metavar="NAME=VALUE",
    multiple=True,
    help="A parameter of the format; may be repeated.",
)
@click.option("--state", type=StateType(), metavar="STATE", help="Only nodes in this state, such as available.")
@selector_option
@click.option("--driver", help="Only nodes with this driver.")
@click.option("--owner", help="Only nodes of this owner.")
@click.option("--resource-class", help="Only nodes of this resource class.")
@click.option("--maintenance/--no-maintenance", default=None, help="Only nodes in maintenance, or not.")
@url_option
@cloud_option
@insecure_option
def export(
    *,
    fmt: str,
    file: Path,
    parameters: tuple[str, ...],
    state: str | None,
    selector: str | None,
    url: str | None,
    cloud: str | None,
    insecure_http: bool,
    **filters: Any,
) -> None:
    """Write the fleet in FORMAT, for other programs.

    csv, json and parquet have one row a machine: fields of its node, and the summary of its hardware. ansible is a
    dynamic inventory; prometheus-sd are targets for service discovery, with the parameters target (name, bmc
    or ip) and port. Other installed packages may provide further formats.
    """
    exporter = _exporter(fmt, parameters)
    api = connect(url, cloud=cloud, insecure_http=insecure_http)
    fields = tuple(dict.fromkeys(("uuid", "name", *exporter.fields)))
    nodes = api.pages(
        "/v1/nodes", "nodes", fields=fields, inbox=False, provision_state=state, labels=selector, **filters
    )
    try:
        with _open_output(file) as output, progress("Exporting", shown=not output.isatty()) as advance:
            exporter.write(_count_nodes(nodes, advance), output)
    except ExportError as exc:
        raise Failure(str(exc), advice=exc.advice) from None


def _count_nodes(nodes: Iterable[Json], advance: Callable[[int], None]) -> Iterator[Json]:
    for node in nodes:
        yield node
        advance(1)


def _exporter(fmt: str, parameters: tuple[str, ...]) -> Exporter:
    values = {}
    for parameter in parameters:
        name, sign, value = parameter.partition("=")
        if not sign:
            raise click.UsageError(f"invalid parameter {parameter!r}: expected NAME=VALUE")
        values[name] = value
    try:
        return loader.load(fmt, ExportOptions(parameters=values))
    except ValueError as exc:
        raise click.UsageError(f"format {fmt!r}: {exc}") from None
    except ExportError as exc:
        raise Failure(str(exc), advice=exc.advice) from None


@contextmanager
def _open_output(file: Path) -> Iterator[BinaryIO]:
    """Yield standard output, or a file that replaces ``file`` at the end: its readers never see a part."""
    if str(file) == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    if file.exists() and not stat.S_ISREG(file.stat().st_mode):  # a pipe, or a terminal
        with file.open("wb") as output:
            yield output
        return
    target = file.resolve()
    handle, name = tempfile.mkstemp(prefix=f".{target.name}-", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as output:
            yield output
            os.fchmod(output.fileno(), _mode(target))
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _mode(target: Path) -> int:
    """Return the mode that the file has, or that the shell would give to a new one."""
    if target.exists():
        return stat.S_IMODE(target.stat().st_mode)
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
