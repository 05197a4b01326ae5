"""``ferroscope pxe-filter``, and ``pxe config | ruleset | clean``: boot configuration and PXE filter of a boot host."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from ferroscope.cli.service import config_option, database_option, exit_with, not_started, read, settings_of
from ferroscope.config import foreign
from ferroscope_client.cli.output import Group, Output, output_option

if TYPE_CHECKING:
    from ferroscope.config.options import ApiSettings


@click.command("pxe-filter")
@config_option
@database_option
def run_pxe_filter(files: tuple[str, ...], database: str | None) -> None:
    """Run the PXE filter of this host's DHCP and TFTP service: open on one host of a network, closed on all others.

    Requires permission to change the host's firewall (CAP_NET_ADMIN).
    """
    from ferroscope.contrib.boot.pxe_filter.process import run

    exit_with(run, settings_of(files, database), reread=lambda: read(files, database))


@click.command("config")
@config_option
@click.option("--host", help="Name of the boot host in [boot] hosts. [default: this host's]")
@click.option(
    "--directory", "directory", type=click.Path(file_okay=False, path_type=Path),
    help="Write dnsmasq.conf and the iPXE script to this directory. [default: print both]",
)  # fmt: skip
@click.option(
    "--install", is_flag=True, help="Write them to [boot] dnsmasq_config and tftp_root; run it on each boot host."
)
def config(files: tuple[str, ...], host: str | None, directory: Path | None, install: bool) -> None:
    """Generate the boot configuration of a boot host: dnsmasq's configuration and the iPXE script.

    Each host allocates addresses from its own part of the [boot] ranges, so that addresses are unique.
    """
    from ferroscope.config.options import is_loopback
    from ferroscope.contrib.boot import dnsmasq, ipxe
    from ferroscope.contrib.boot.addresses import own_name
    from ferroscope.core.boot import CALLBACK_PATH

    if directory is not None and install:
        raise click.UsageError("--directory and --install are mutually exclusive")
    settings = settings_of(files)
    boot = settings.boot
    if not boot.hosts:
        raise click.ClickException("no boot hosts are configured: set [boot] hosts and [boot] ranges")
    if not boot.ranges and not boot.proxied_networks:
        raise click.ClickException(
            "no DHCP address ranges are configured: set [boot] ranges, for example to 10.0.0.50-10.0.0.229, or "
            "proxied_networks, for example to 10.0.0.0/24, if another DHCP server assigns the addresses"
        )
    if not settings.pxe_filter.interfaces:
        raise click.ClickException("no boot interfaces are configured: set [pxe_filter] interfaces")
    if not boot.callback_url:
        raise click.ClickException(
            f"no callback URL is configured: set [boot] callback_url to http://HOST:6385{CALLBACK_PATH}"
        )
    if is_loopback(urlsplit(boot.callback_url).hostname or ""):
        click.echo(f"Warning: other machines cannot reach [boot] callback_url {boot.callback_url}", err=True)
    elif settings.api.loopback_only and listens_here(boot.callback_url, settings.api):
        click.echo(
            "Warning: [boot] callback_url is on this host, but [api] host is loopback only: machines cannot call "
            "back unless a proxy runs on this host",
            err=True,
        )
    name = host or own_name(boot.hosts)
    try:
        text = dnsmasq.configuration(boot, settings.pxe_filter, name)
        script = ipxe.script(boot, settings.inspector, name)
    except ValueError as exc:
        raise click.ClickException(str(exc)) from exc
    made = {"dnsmasq.conf": text, dnsmasq.SCRIPT_NAME: script}
    if install:
        _write({Path(boot.dnsmasq_config): text, Path(boot.tftp_root) / dnsmasq.SCRIPT_NAME: script})
    elif directory is not None:
        _write({directory / name: content for name, content in made.items()})
    else:
        click.echo("\n".join(f"# ---- {name}\n{content}" for name, content in made.items()), nl=False)


def listens_here(url: str, api: ApiSettings) -> bool:
    """Return whether the URL has an address of this host and the api's port."""
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
            foreign.refuse(path.parent)
            path.parent.mkdir(parents=True, exist_ok=True)
            foreign.refuse(path.parent)
            path.write_text(content, encoding="utf-8")
        except OSError as exc:
            raise click.ClickException(f"cannot write {path}: {exc.strerror}") from exc
        click.echo(f"wrote {path}")


# ``ferroscope pxe ruleset | clean``: close the filter before its process starts, and remove it.


@click.command()
@config_option
@click.option(
    "-o", "--output", "path", type=click.Path(dir_okay=False, path_type=Path),
    help="File to write, atomically. [default: print it]",
)  # fmt: skip
def ruleset(files: tuple[str, ...], path: Path | None) -> None:
    """Generate the closed filter as an nftables ruleset, to load when the host boots: nft -f FILE.

    The systemd unit ferroscope-pxe-closed.service loads it before the network is up.
    """
    from ferroscope.config.errors import StartError
    from ferroscope.contrib.boot.pxe_filter.checks import closed_ruleset

    try:
        text = closed_ruleset(settings_of(files))
    except StartError as exc:
        raise not_started(exc) from exc
    if path is None:
        click.echo(text, nl=False)
    else:
        _write_ruleset(path, text)
        click.echo(f"wrote {path}")


def _write_ruleset(path: Path, text: str) -> None:
    """Replace the file atomically: a truncated ruleset would load, and close nothing."""
    beside = path.with_name(f".{path.name}.new")
    try:
        foreign.refuse(path.parent)
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
    help="Also remove nftables tables of other networks whose pxe-filter is not running on this host.",
)  # fmt: skip
@output_option
def clean(files: tuple[str, ...], everything: bool, fmt: str) -> None:
    """Remove the filter from this host: tables, chains and files. Its DHCP service then serves every machine.

    Stop the pxe-filter first: it would install the filter again.
    """
    import logging

    import msgspec
    import structlog

    from ferroscope.config.errors import StartError
    from ferroscope.contrib.boot.pxe_filter import PxeFilterError
    from ferroscope.contrib.boot.pxe_filter.host_filters import remove_pxe_filter
    from ferroscope.runtime.system import SystemClock

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))  # no log of the filter
    try:
        removal = remove_pxe_filter(settings_of(files).pxe_filter, SystemClock(), everything=everything)
    except PxeFilterError as exc:
        raise click.ClickException(str(exc)) from exc
    except StartError as exc:
        raise not_started(exc) from exc
    out = Output(fmt)
    names = ", ".join((*removal.removed, *removal.tables))
    out.show(msgspec.to_builtins(removal), lambda screen: screen.print(f"removed: {names}"))
    for note in removal.notes:
        out.say(note)


@click.group(cls=Group)
def pxe() -> None:
    """Generate the boot configuration, and manage this host's PXE filter."""


pxe.add_command(ruleset)
pxe.add_command(clean)
pxe.add_command(config)
