"""Writes the files of a boot host, and starts its services. Replaced files are kept in ``plan.BACKUPS``.

Repeatable: a file with the right content is left alone, and so is a service that runs with it.
"""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import stat
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec

from ferroscope.config import foreign
from ferroscope.config.options import BootSettings, Settings
from ferroscope.contrib.boot import host_facts
from ferroscope.contrib.boot.setup import plan
from ferroscope.contrib.boot.setup.plan import InstallTarget
from ferroscope_client.errors import Exit, Failure

_INSTALLED: Final = "/opt/ferroscope/bin/ferroscope"
_COMMAND_SECONDS: Final = 600.0
_USER: Final = "ferroscope"
_ALL: Final = "ferroscope-all.service"
_ROLES: Final = (_ALL, "ferroscope-api.service", "ferroscope-worker.service", "ferroscope-failover.service")
_UNIT_DIRECTORY: Final = Path("/etc/systemd/system")


class FileState(StrEnum):
    SAME = "unchanged"
    NEW = "new"
    REPLACED = "replaced"


class FileChange(msgspec.Struct, frozen=True):
    """The result for a file; ``kept``: the place of its former content."""

    path: Path
    change: FileState
    kept: Path | None = None

    def __str__(self) -> str:
        return f"{self.change.value}: {self.path}" + (f" (before: {self.kept})" if self.kept else "")


def compare(targets: Iterable[InstallTarget], *, replace: bool) -> list[FileChange]:
    """Return the planned changes; ``Failure`` for a foreign file, unless it should be replaced."""
    changes = []
    for target in targets:
        try:
            foreign.refuse(target.path.parent)
            before = target.path.read_bytes()
        except FileNotFoundError:
            changes.append(FileChange(target.path, FileState.NEW))
            continue
        except OSError as exc:
            raise Failure(f"cannot read {target.path}: {exc.strerror}", exit_code=Exit.CONFLICT) from exc
        if before == target.content:
            changes.append(FileChange(target.path, FileState.SAME))
        elif replace or plan.is_ours(before):
            backup = kept_at(plan.BACKUPS / target.path.relative_to("/"), before)
            changes.append(FileChange(target.path, FileState.REPLACED, backup))
        else:
            raise Failure(
                f"{target.path} exists, and was not written by Ferroscope",
                exit_code=Exit.CONFLICT,
                advice=f"move it away, or replace it with --replace (it is then kept in {plan.BACKUPS})",
            )
    return changes


def write(targets: Sequence[InstallTarget], changes: Sequence[FileChange]) -> None:
    """Write the files that differ; ``Failure``."""
    for target, change in zip(targets, changes, strict=True):
        try:
            if change.kept is not None:
                change.kept.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                keep(target.path, change.kept)
            if change.change is not FileState.SAME:
                foreign.refuse(target.path.parent)
                _make(target.path.parent)
                foreign.refuse(target.path.parent)
                _write_atomically(target)
        except OSError as exc:
            raise Failure(f"cannot write {target.path}: {exc.strerror or exc}") from exc


def _make(directory: Path) -> None:
    """Make a world-readable directory, regardless of the umask: dnsmasq and the web server are other users."""
    created = [parent for parent in (directory, *directory.parents) if not parent.exists()]
    for parent in reversed(created):
        parent.mkdir(exist_ok=True)
        parent.chmod(0o755)


def kept_at(wanted: Path, content: bytes) -> Path:
    """Return where to keep this content: ``wanted``, or the first numbered name that is free or has it already."""
    names = (wanted if number == 0 else wanted.with_name(f"{wanted.name}.{number}") for number in itertools.count())
    return next(name for name in names if not name.exists() or name.read_bytes() == content)


def keep(path: Path, where: Path) -> None:
    """Copy the file; other users cannot read the copy before it has the original's permissions."""
    where.touch(mode=0o600)
    shutil.copy2(path, where)


def _write_atomically(target: InstallTarget) -> None:
    # Hidden, and so ignored by dnsmasq, nginx and systemd.
    descriptor, temporary = tempfile.mkstemp(dir=target.path.parent, prefix=f".{target.path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(target.content)
            stream.flush()
            os.fsync(stream.fileno())
            os.fchmod(stream.fileno(), target.mode)
        Path(temporary).replace(target.path)
    finally:
        Path(temporary).unlink(missing_ok=True)


def loaders(settings: BootSettings) -> tuple[list[InstallTarget], list[str]]:
    """Return the boot loaders to install, and remarks on those that are missing or left alone."""
    targets, remarks = [], []
    for name in (settings.loader_bios, settings.loader_x64, settings.loader_arm64):
        source, path = host_facts.LOADERS / name, Path(settings.tftp_root) / name
        if path.exists():
            if source.exists() and source.read_bytes() != path.read_bytes():
                remarks.append(f"{path} is another one than {source}, and is kept")
        elif source.exists():
            targets.append(InstallTarget(path, source.read_bytes()))
        else:
            remarks.append(f"{name} is not in {host_facts.LOADERS}: {_consequence(settings, name)}")
    return targets, remarks


def _consequence(settings: BootSettings, name: str) -> str:
    if name == settings.loader_arm64:
        return (
            "arm64 machines without iPXE firmware cannot boot; Debian 12 does not have it, so copy it from a newer "
            f"Debian, or build it (make bin-arm64-efi/ipxe.efi), as {Path(settings.tftp_root) / name}"
        )
    return "install the package ipxe, or set another name in [boot]"


def units() -> list[InstallTarget]:
    """Return the units to install, if systemd runs; ``Failure`` if they are nowhere on this host."""
    if not host_facts.SYSTEMD.is_dir():
        return []
    lacking = [name for name in plan.UNITS if host_facts.unit(name) in (None, _UNIT_DIRECTORY / name)]
    if not lacking:
        return []
    places = [Path(sysconfig.get_path("data"), "share/ferroscope/deploy"), Path(__file__).parents[5] / "deploy"]
    source = next((place / "systemd" for place in places if (place / "systemd" / lacking[0]).exists()), None)
    if source is None:
        raise Failure(
            "the units of a boot host are not installed",
            advice="install the package that has them: apt install ./ferroscope-boot-host_*_all.deb",
        )
    program = str(Path(sys.argv[0]).resolve())
    return [
        InstallTarget(_UNIT_DIRECTORY / name, (source / name).read_text().replace(_INSTALLED, program).encode())
        for name in lacking
    ]


def unreadable(root: Path) -> Path | None:
    """Return the directory that hides the boot files from other users, such as dnsmasq and the web server."""
    for place in (root, *root.absolute().parents):
        if place.is_dir() and not stat.S_IMODE(place.stat().st_mode) & stat.S_IXOTH:
            return place
    return None


class ServiceUnit(msgspec.Struct, frozen=True):
    """A unit to start; ``changed``: it runs with an outdated configuration."""

    unit: str
    changed: bool

    def commands(self) -> list[list[str]]:
        return [["systemctl", "enable", self.unit], ["systemctl", "restart" if self.changed else "start", self.unit]]


def services(changes: Iterable[FileChange], settings: Settings, *, configured: bool) -> list[ServiceUnit]:
    """Return the services in their order. ``configured``: whether the service's own configuration was changed.

    With SQLite, the whole service is on this host, and the PXE filter needs its tables. With a database server, the
    roles that run here continue with the new configuration.
    """
    changed = {written.path for written in changes if written.change is not FileState.SAME}
    closed, pxe_filter = plan.UNITS
    alone = settings.database.connection.startswith("sqlite") and host_facts.unit(_ALL) is not None
    roles = [_ALL] if alone else [unit for unit in _ROLES if configured and host_facts.is_active(unit)]
    return [
        *(ServiceUnit(unit, configured) for unit in roles),
        ServiceUnit(closed, plan.RULESET in changed),
        ServiceUnit(pxe_filter, configured),
        ServiceUnit("dnsmasq.service", Path(settings.boot.dnsmasq_config) in changed),
        ServiceUnit("nginx.service", plan.WEB_SITE in changed),
    ]


def add_user() -> None:
    """Create the user of the units, as Debian's package does; ``Failure``."""
    try:
        pwd.getpwnam(_USER)
    except KeyError:
        run(["adduser", "--system", "--group", "--quiet", "--home", "/var/lib/ferroscope", "--no-create-home", _USER])


def start(wanted: Sequence[ServiceUnit], *, reload: bool) -> None:
    """Start them with systemd; ``Failure``. ``reload``: units have changed."""
    commands = [["systemctl", "daemon-reload"]] if reload else []
    for service in wanted:
        commands += service.commands()
    for command in commands:
        run(command, advice=f"see: journalctl -u {command[-1]}")


def run(command: Sequence[str], *, advice: str = "") -> None:
    """Run a command; ``Failure`` with its last line if it fails."""
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    try:
        done = subprocess.run(  # noqa: S603  # only commands of this module and of its caller
            command, capture_output=True, text=True, timeout=_COMMAND_SECONDS, check=False, env=environment
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise Failure(f"{' '.join(command)}: {exc}", advice=advice) from exc
    if done.returncode:
        lines = (done.stderr.strip() or done.stdout.strip()).splitlines() or [f"exit code {done.returncode}"]
        raise Failure(f"{' '.join(command)}: {lines[-1]}", advice=advice)
