"""``ferroscope ramdisk build | list | check``: the ramdisk that machines boot to be inspected."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import click

from ferroscope.cli.service import config_option, settings_of, show_findings
from ferroscope.contrib.ramdisk.manifest import RamdiskError
from ferroscope.contrib.ramdisk.plan import AGENT, BuildPlan, names
from ferroscope.core.boot import CONSOLES, with_consoles
from ferroscope_client.cli.output import Group, Output, output_option, table
from ferroscope_client.errors import Exit, Failure

if TYPE_CHECKING:
    from ferroscope.config.options import Settings
    from ferroscope.contrib.ramdisk.installed import Installed

_Directory: Final = click.Path(file_okay=False, path_type=Path)
_File: Final = click.Path(dir_okay=False, path_type=Path)


@contextmanager
def _explain_errors(exit_code: Exit = Exit.FAILURE) -> Iterator[None]:
    try:
        yield
    except RamdiskError as exc:
        raise Failure(exc.summary, exit_code=exit_code, advice=exc.advice) from exc


@click.group(cls=Group)
def ramdisk() -> None:
    """Build the ramdisk that machines boot for inspection, and check what is installed."""


@ramdisk.command(epilog="Exit code 2: an option, or this host, does not allow the build; nothing was done.")
@config_option
@click.option("--directory", type=_Directory, help="Where the files are written. [default: [boot] tftp_root]")
@click.option(
    "--kernel", type=click.Choice(["generic", "cloud"]), default="generic", show_default=True,
    help="Debian's kernel: generic for all machines, cloud for virtual ones, which is half as large.",
)  # fmt: skip
@click.option(
    "--firmware/--no-firmware", default=None,
    help="Include Debian's firmware for NICs and HBAs, which is not free software. [default: with the generic kernel]",
)  # fmt: skip
@click.option(
    "--arch", type=click.Choice(["amd64", "arm64"]), help="Architecture of the machines. [default: this host's]"
)
@click.option(
    "--agent", default=AGENT, show_default=True, metavar="VERSION",
    help="Release of ironic-python-agent. The packages of the default one are pinned, with hashes.",
)  # fmt: skip
@click.option(
    "--mirror", default="",
    help="URL of Debian's packages, such as a snapshot. [default: from this host's apt]",
)  # fmt: skip
@click.option("--security-mirror", default="", help="URL of Debian's security updates. [default: from this host's apt]")
@click.option(
    "--extra-package", "extra_packages", multiple=True, metavar="NAME", help="Another Debian package; may be repeated."
)
@click.option(
    "--ssh-key", "ssh_keys", multiple=True, type=_File,
    help="Public SSH key for root logins to machines; may be repeated. [default: no logins]",
)  # fmt: skip
@click.option(
    "--ca", "authorities", multiple=True, type=_File,
    help="CA that the agent trusts, in PEM, if the api's certificate is of a private one; may be repeated.",
)  # fmt: skip
@click.option(
    "--hook", "hook_directory", type=_Directory,
    help="Directory of scripts that are run in the finished system, by name; they may change it.",
)  # fmt: skip
@click.option(
    "--callback-url",
    help="URL to build in, for machines without a parameter disk or boot script. [default: the configured one]",
)
@click.option(
    "--kernel-params",
    help="Kernel parameters to build in. [default: the configured ones, or both consoles]",
)
@click.option("--sign-key", type=_File, help="Private key of OpenSSH with which to sign the manifest.")
@click.option("--verbose", is_flag=True, help="Show what the programs print.")
def build(
    files: tuple[str, ...],
    directory: Path | None,
    firmware: bool | None,
    arch: str | None,
    ssh_keys: tuple[Path, ...],
    authorities: tuple[Path, ...],
    hook_directory: Path | None,
    callback_url: str | None,
    kernel_params: str | None,
    sign_key: Path | None,
    verbose: bool,
    **options: Any,
) -> None:
    """Build the ramdisk from Debian's packages and ironic-python-agent; as root, or with user namespaces.

    It writes a kernel and an initramfs for network boot, an ISO for virtual media, an iPXE script, and a manifest with
    the hashes and versions of everything. The same sources and options give the same files.
    """
    from ferroscope.contrib.ramdisk import host, inputs, mirrors, plan
    from ferroscope.contrib.ramdisk.build import build as run

    settings = settings_of(files)
    directory = directory or Path(settings.boot.tftp_root)
    arch = arch or host.architecture()
    with _explain_errors(Exit.USAGE):
        wanted = BuildPlan(
            arch=arch,  # type: ignore[arg-type]  # one of the choices
            firmware=options["kernel"] == "generic" if firmware is None else firmware,
            ssh_keys=tuple(inputs.ssh_key(path) for path in ssh_keys),
            certificates=tuple(certificate for path in authorities for certificate in inputs.certificates(path)),
            hooks=tuple(inputs.hooks(hook_directory)) if hook_directory else (),
            callback_url=_callback_url(settings) if callback_url is None else callback_url,
            kernel_params=_kernel_params(settings, arch) if kernel_params is None else kernel_params,
            **options,
        )
        plan.check(wanted)
        host.check(wanted, directory, signs=sign_key is not None)
        chosen = mirrors.of(wanted)
    named = names(settings.boot.kernel, settings.boot.ramdisk, wanted.arch)
    with _explain_errors():
        run(
            wanted,
            chosen,
            named,
            directory,
            sign_key=sign_key,
            loud=verbose,
            say=lambda text: click.echo(text, err=True),
        )
    for name in (*named.files, named.manifest):
        click.echo(f"wrote {directory / name}")
    _show_next_steps(settings, directory, named.iso)


def _callback_url(settings: Settings) -> str:
    """Return the configured URL, "" if there is none that other machines can reach."""
    from ferroscope.config.options import is_loopback
    from ferroscope.contrib.ramdisk.checks import expected_callback

    url = expected_callback(settings)
    return "" if is_loopback(urlsplit(url).hostname or "") else url


def _kernel_params(settings: Settings, arch: str) -> str:
    configured = " ".join([settings.inspector.extra_kernel_params, *settings.boot.kernel_options])
    return with_consoles(configured, CONSOLES[arch])


def _show_next_steps(settings: Settings, directory: Path, iso: str) -> None:
    steps = []
    if directory != Path(settings.boot.tftp_root):
        steps.append(f"for network boot, copy the files to {settings.boot.tftp_root} of each boot host")
    if not settings.inspector.ramdisk_iso:
        steps.append(f"for virtual media, set [inspector] ramdisk_iso = {directory / iso} on the api's hosts")
    steps.append(f"check the installed files: ferroscope ramdisk check {directory}")
    click.echo("\nNext:")
    for next_step in steps:
        click.echo(f"  * {next_step}")


def _directory(directory: Path | None, settings: Settings) -> Path:
    return directory or Path(settings.boot.tftp_root)


@ramdisk.command("list")
@click.argument("directory", required=False, type=_Directory)
@config_option
@output_option
def list_(directory: Path | None, files: tuple[str, ...], fmt: str) -> None:
    """List the ramdisks in a directory, by default [boot] tftp_root: agent, kernel, and how old they are."""
    from ferroscope.contrib.ramdisk import installed

    with _explain_errors(Exit.NOT_FOUND):
        builds = installed.some(_directory(directory, settings_of(files)))
    rows = [_row(installed_build) for installed_build in builds]
    titles = ("NAME", "ARCH", "KERNEL", "FIRMWARE", "AGENT", "SOURCES", "DAYS", "MB")
    shown = [tuple(row[title.lower()] for title in titles) for row in rows]
    Output(fmt).show({"ramdisks": rows}, lambda screen: screen.print(table(titles, shown)))


def _row(installed_build: Installed) -> dict[str, Any]:
    manifest = installed_build.manifest
    return {
        "name": installed_build.name,
        "arch": manifest.options.arch,
        "kernel": manifest.kernel,
        "firmware": manifest.options.firmware,
        "agent": manifest.agent,
        "sources": manifest.sources_time.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "days": installed_build.age(datetime.datetime.now(datetime.UTC)),
        "mb": round(installed_build.size / 1e6),
    }


@ramdisk.command(epilog="Exit code 1: a check failed. 3: the directory has no ramdisk.")
@click.argument("directory", required=False, type=_Directory)
@click.option("--public-key", type=_File, help="Public key of the required signer of the manifest.")
@config_option
@output_option
def check(directory: Path | None, public_key: Path | None, files: tuple[str, ...], fmt: str) -> None:
    """Check the ramdisks in a directory, by default [boot] tftp_root.

    Whether the files match the manifest, who signed it, how old everything is, and whether machines that boot
    it reach the configured api and trust its certificate.
    """
    from ferroscope.contrib.ramdisk import installed
    from ferroscope.contrib.ramdisk.checks import examine

    settings = settings_of(files)
    with _explain_errors(Exit.NOT_FOUND):
        builds = installed.some(_directory(directory, settings))
    with _explain_errors():
        findings = [finding for installed_build in builds for finding in examine(installed_build, settings, public_key)]
    if show_findings(findings, Output(fmt)):
        raise click.exceptions.Exit(Exit.FAILURE)
