"""The service under measurement: ``ferroscope api`` and ``ferroscope worker`` as an operator runs them.

Real processes from the installed command, their own configuration file in a directory of their
own, defaults for everything that a figure could depend on. Logs go to files, as under a service manager.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from bench.usage import cpu_seconds
from tests.support.installation import Played
from tests.support.processes import free_port

_END_SECONDS: Final = 40.0

ROLES: Final = ("api", "worker")


class ServiceError(Exception):
    """A process did not start or stop as it should; the message has the end of its log."""


class Role(Played):
    """One process of the service; ``command`` is what runs before the role's own arguments."""

    def __init__(self, name: str, directory: Path, config: Path, command: Sequence[str]) -> None:
        super().__init__(name, directory, [*command, name, "-c", str(config)])

    def faults(self) -> list[str]:
        """Return the lines of its log that are errors."""
        return [line for line in self.log.read_text().splitlines() if "[error" in line or "Traceback" in line]

    def tail(self) -> str:
        return self.output()[-3000:]


class Service(msgspec.Struct):
    """Running processes by role, and the API's root."""

    url: str
    config: Path
    roles: dict[str, Role]

    def cpu(self) -> dict[str, float]:
        """Return the CPU seconds that each role has used so far."""
        return {name: cpu_seconds(role.pid) for name, role in self.roles.items()}

    def faults(self) -> list[str]:
        """Return the first lines of all logs that are errors."""
        return [fault for role in self.roles.values() for fault in role.faults()][:20]


def executable() -> str:
    """Return the installed ``ferroscope`` of this Python."""
    return str(Path(sys.executable).with_name("ferroscope"))


def configure(directory: Path, database_url: str, *, extra: str = "", api: str = "") -> tuple[Path, str]:
    """Write a configuration with the simulator's drivers; return its path and the API's root.

    ``api``: more lines of that section; ``extra``: more sections.
    """
    port = free_port()
    path = directory / "ferroscope.conf"
    path.write_text(
        f"[api]\nhost = 127.0.0.1\nbare_metal_port = {port}\nintrospection_port = {free_port()}\n{api}"
        f"[database]\nconnection = {database_url}\n[drivers]\nenabled = sim,fake-hardware\n{extra}"
    )
    return path, f"{'https' if 'tls_' in api else 'http'}://127.0.0.1:{port}"


def upgrade(config: Path, program: str = "") -> None:
    """Bring the schema up to date."""
    program = program or executable()
    done = subprocess.run([program, "db", "upgrade", "-c", str(config)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ServiceError(f"ferroscope db upgrade ended with {done.returncode}:\n{done.stdout}{done.stderr}")


@contextmanager
def service(
    directory: Path,
    database_url: str,
    *,
    roles: Sequence[str] = ROLES,
    commands: Mapping[str, Sequence[str]] | None = None,
    extra: str = "",
    api: str = "",
    program: str = "",
) -> Iterator[Service]:
    """Run the roles on a database that is brought up to date first; stop them at the end.

    ``commands`` gives another command for a role, a profiler for example; ``extra`` and ``api`` are configuration.
    ``program`` is the ``ferroscope`` of another environment.
    """
    config, url = configure(directory, database_url, extra=extra, api=api)
    upgrade(config, program)
    running: dict[str, Role] = {}
    try:
        for name in roles:
            command = (commands or {}).get(name, [program or executable()])
            running[name] = Role(name, directory, config, command)
        for role in running.values():
            role.wait_ready()
        yield Service(url, config, running)
    finally:
        codes = {role: role.stop(_END_SECONDS) if role.alive else role.process.wait() for role in running.values()}
        for role, code in codes.items():
            if code:
                raise ServiceError(f"{role.name} ended with {code}:\n{role.tail()}")
