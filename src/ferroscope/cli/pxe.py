"""``ferroscope pxe config``: what a boot host's dnsmasq and its machines are given, made from the configuration."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from ferroscope.cli.output import Group, Output, output_option
from ferroscope.cli.service import config_option, settings_of

if TYPE_CHECKING:
    from ferroscope.config.options import ApiSettings


@click.command("config")
@config_option
@click.option("--host", help="Name of the boot host in [boot] hosts. [default: this host's]")
@click.option(
    "--directory", "directory", type=click.Path(file_okay=False, path_type=Path),
    help="Write dnsmasq.conf and the script there. [default: print both]",
)  # fmt: skip
@click.option(
    "--install", is_flag=True, help="Write them to where [boot] dnsmasq_config and tftp_root say; do it on each host."
)
def config(files: tuple[str, ...], host: str | None, directory: Path | None, install: bool) -> None:
    """Make the boot configuration of a boot host: dnsmasq's file, and the iPXE script.

    Every host gives addresses of its own part of each range in [boot] ranges, so that no two give the same one.
    """
    from ferroscope.boot_config import dnsmasq, ipxe
    from ferroscope.boot_config.dnsmasq import own_name
    from ferroscope.config.options import is_loopback
    from ferroscope.core.boot import CALLBACK_PATH

    if directory is not None and install:
        raise click.UsageError("give --directory or --install, not both")
    settings = settings_of(files)
    boot = settings.boot
    if not boot.hosts:
        raise click.ClickException("there are no boot hosts; name all of them in [boot] hosts, and give [boot] ranges")
    if not boot.ranges:
        raise click.ClickException(
            "[boot] ranges is empty, so that no machine would get an address; set it, such as 10.0.0.50-10.0.0.229"
        )
    if not settings.pxe_filter.interfaces:
        raise click.ClickException("[pxe_filter] interfaces is not set: those of this host on which machines boot")
    if not boot.callback_url:
        raise click.ClickException(f"[boot] callback_url is not set: http://HOST:6385{CALLBACK_PATH} of your API")
    if is_loopback(urlsplit(boot.callback_url).hostname or ""):
        click.echo(f"Warning: no machine but this one can reach [boot] callback_url, {boot.callback_url}", err=True)
    elif settings.api.loopback_only and listens_here(boot.callback_url, settings.api):
        click.echo(
            "Warning: [boot] callback_url names this host, but [api] host is loopback only: without a proxy "
            "here no machine can call back",
            err=True,
        )
    name = host or own_name(boot.hosts)
    try:
        text = dnsmasq.configuration(boot, settings.pxe_filter, name)
        script = ipxe.script(boot, settings.inspector, name)
    except ValueError as exc:
        raise click.ClickException(str(exc)) from exc
    made = {"dnsmasq.conf": text, boot.script: script}
    if install:
        _write({Path(boot.dnsmasq_config): text, Path(boot.tftp_root) / boot.script: script})
    elif directory is not None:
        _write({directory / name: content for name, content in made.items()})
    else:
        click.echo("\n".join(f"# ---- {name}\n{content}" for name, content in made.items()), nl=False)


def listens_here(url: str, api: ApiSettings) -> bool:
    """Whether the URL is one of this host's addresses, with the api's port."""
    import socket

    parts = urlsplit(url)
    if parts.port != api.bare_metal_port or not parts.hostname:
        return False
    family = socket.AF_INET6 if ":" in parts.hostname else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((parts.hostname, 0))
    except OSError:
        return False
    return True


def _write(files: dict[Path, str]) -> None:
    for path, content in files.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
        except OSError as exc:
            raise click.ClickException(f"cannot write {path}: {exc.strerror}") from exc
        click.echo(f"wrote {path}")


# ``ferroscope pxe ruleset | clean``: the filter before its process has begun, and after it is no longer wanted.


@click.command()
@config_option
@click.option(
    "-o", "--output", "path", type=click.Path(dir_okay=False, path_type=Path),
    help="File to write, as a whole or not at all. [default: print it]",
)  # fmt: skip
def ruleset(files: tuple[str, ...], path: Path | None) -> None:
    """Make the closed filter as an nftables ruleset, to be loaded when the host starts: nft -f FILE.

    The service unit ferroscope-pxe-closed.service does so before the network comes up.
    """
    from ferroscope.runtime.pxe_filter import closed_ruleset
    from ferroscope.runtime.system import StartError

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
    help="Also remove the nftables tables of other networks' filters whose pxe-filter does not run here.",
)  # fmt: skip
@output_option
def clean(files: tuple[str, ...], everything: bool, fmt: str) -> None:
    """Take the filter off this host: its tables, chains and files; the service behind it is then open to all.

    Stop the pxe-filter first: it would put its filter in place again.
    """
    import logging

    import msgspec
    import structlog

    from ferroscope.contracts.pxe_filter import PxeFilterError
    from ferroscope.runtime.pxe_filter import remove_pxe_filter
    from ferroscope.runtime.system import StartError

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))  # the filter's own words
    try:
        removal = remove_pxe_filter(settings_of(files), everything=everything)
    except (PxeFilterError, StartError) as exc:
        raise click.ClickException(str(exc)) from exc
    out = Output(fmt)
    names = ", ".join((*removal.removed, *removal.tables))
    out.show(msgspec.to_builtins(removal), lambda screen: screen.print(f"removed: {names}"))
    for note in removal.notes:
        out.say(note)


# ``ferroscope pxe``: the group of what an operator does on a boot host.


@click.group(cls=Group)
def pxe() -> None:
    """Look after the PXE filter of this host and its boot configuration."""


pxe.add_command(ruleset)
pxe.add_command(clean)
pxe.add_command(config)
