"""How a private PostgreSQL and a private MariaDB are set up and run.

Small and quick to start, but with every guard of durability on: tests kill them and then look
for what was committed. Standard library only.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Final, Protocol

from tests.support.processes import account, run

_PACKAGES: Final = "install the Debian packages postgresql and mariadb-server, or run: make test"


# The certificates that sign those of clients, where a server shall ask for them.
CLIENTS: Final = "clients.pem"


class MissingServerError(RuntimeError):
    """A server that the tests need is not installed: an error, for a skipped test proves nothing."""


class Daemon(Protocol):
    """One kind of database server, in a directory that belongs to ``user``."""

    user: str | None

    def install(self, directory: Path) -> None:
        """Make a new, empty database server in ``directory``."""

    def command(self, directory: Path, port: int) -> list[str]:
        """Return the command that runs it in the foreground."""

    def answers(self, port: int) -> bool:
        """Whether it takes connections."""


class Postgresql:
    """Trusts everybody on 127.0.0.1; the superuser is ``ferroscope``."""

    def __init__(self) -> None:
        self.user = account("postgres")
        versions = sorted(Path("/usr/lib/postgresql").glob("[0-9]*/bin"), key=_version, reverse=True)
        self._initdb = _program("initdb", versions)
        self._postgres = _program("postgres", versions)
        self._isready = _program("pg_isready", versions)

    def install(self, directory: Path) -> None:
        options = ["-U", "ferroscope", "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync"]
        run([self._initdb, "-D", str(directory / "data"), *options], user=self.user, directory=directory)

    def command(self, directory: Path, port: int) -> list[str]:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(port),
            "unix_socket_directories": "",
            "max_connections": "300",
            "shared_buffers": "64MB",
            "dynamic_shared_memory_type": "mmap",  # leaves nothing outside of its directory when it is killed
            "wal_level": "minimal",
            "max_wal_senders": "0",
            "fsync": "on",
            "synchronous_commit": "on",
            "full_page_writes": "on",
            "jit": "off",
            "deadlock_timeout": "100ms",  # only how soon it looks, not what it does
        }
        if tls := tls_files(directory):
            settings |= {"ssl": "on", "ssl_cert_file": str(tls[0]), "ssl_key_file": str(tls[1])}
        if tls and (clients := directory / CLIENTS).exists():
            settings["ssl_ca_file"] = str(clients)
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        return [self._postgres, "-D", str(directory / "data"), *options]

    def answers(self, port: int) -> bool:
        probe = [self._isready, "-q", "-h", "127.0.0.1", "-p", str(port), "-t", "2"]
        return subprocess.run(probe, check=False).returncode == 0


class Mariadb:
    """The user ``root`` has no password; it listens on 127.0.0.1 only."""

    def __init__(self) -> None:
        self.user = account("mysql")
        self._install = _program("mariadb-install-db", [])
        self._server = _program("mariadbd", [Path("/usr/sbin")])

    def install(self, directory: Path) -> None:
        options = ["--auth-root-authentication-method=normal", "--skip-test-db", "--innodb-log-file-size=32M"]
        command = [self._install, "--no-defaults", *_places(directory), *options]
        run(command, user=self.user, directory=directory)

    def command(self, directory: Path, port: int) -> list[str]:
        tls = tls_files(directory)
        secured = [f"--ssl-cert={tls[0]}", f"--ssl-key={tls[1]}", "--require-secure-transport=ON"] if tls else []
        if tls and (clients := directory / CLIENTS).exists():
            secured.append(f"--ssl-ca={clients}")
        return [
            self._server,
            "--no-defaults",
            *_places(directory),
            f"--socket={directory / 'data' / 'socket'}",
            f"--pid-file={directory / 'data' / 'pid'}",
            "--bind-address=127.0.0.1",
            f"--port={port}",
            "--skip-name-resolve",
            "--max-connections=300",
            "--performance-schema=off",
            "--innodb-log-file-size=32M",
            "--innodb-buffer-pool-size=128M",
            "--innodb-flush-log-at-trx-commit=1",
            "--innodb-doublewrite=1",
            *secured,
        ]

    def answers(self, port: int) -> bool:
        """It greets whoever connects, but only once it is ready."""
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
                return len(connection.recv(16)) > 4
        except OSError:
            return False


def tls_files(directory: Path) -> tuple[Path, Path] | None:
    """Return certificate and key with which the server shall speak TLS from its next start on, if they are there."""
    files = directory / "tls.crt", directory / "tls.key"
    return files if all(file.exists() for file in files) else None


def _places(directory: Path) -> list[str]:
    """Return where a MariaDB keeps its files; in a shared place for temporary ones it deletes those of others."""
    return [f"--datadir={directory / 'data'}", f"--tmpdir={directory}"]


class Swift:
    """OpenStack Swift with S3 in front, in an environment of its own: it uses eventlet."""

    def __init__(self) -> None:
        self.user = None
        root = Path(__file__).parents[2]
        self._python = root / ".swift-venv" / "bin" / "python"
        self._script = root / "tests" / "support" / "swift" / "server.py"
        if not self._python.exists():
            raise MissingServerError("the tests need OpenStack Swift in .swift-venv; run: tools/setup.sh swift")

    def install(self, directory: Path) -> None:
        """It makes what it needs when it starts."""

    def command(self, directory: Path, port: int) -> list[str]:
        return [str(self._python), "-W", "ignore", str(self._script), str(directory), str(port)]

    def answers(self, port: int) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
                connection.sendall(b"GET /healthcheck HTTP/1.0\r\n\r\n")
                return b" 200 " in connection.recv(64)
        except OSError:
            return False


KINDS: Final[dict[str, type[Postgresql] | type[Mariadb] | type[Swift]]] = {
    "postgresql": Postgresql,
    "mariadb": Mariadb,
    "swift": Swift,
}


def _program(name: str, directories: list[Path]) -> str:
    path = os.pathsep.join([*map(str, directories), os.environ.get("PATH", os.defpath), "/usr/sbin"])
    found = shutil.which(name, path=path)
    if found is None:
        raise MissingServerError(f"the tests need {name}, which is not installed; {_PACKAGES}")
    return found


def _version(directory: Path) -> int:
    return int(re.sub(r"\D.*", "", directory.parent.name))
