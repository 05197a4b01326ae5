"""``ferroscope pxe config``: what a boot host's dnsmasq and its machines are given, made from the configuration."""

from __future__ import annotations

from pathlib import Path

import click

from ferroscope.cli.configured import config_option, settings_of


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
    from ferroscope.boot import dnsmasq, ipxe
    from ferroscope.boot.hosts import own_name
    from ferroscope.domain.kernel_params import CALLBACK_PATH

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


def _write(files: dict[Path, str]) -> None:
    for path, content in files.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
        except OSError as exc:
            raise click.ClickException(f"cannot write {path}: {exc.strerror}") from exc
        click.echo(f"wrote {path}")
