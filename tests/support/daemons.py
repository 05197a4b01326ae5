"""How private PostgreSQL, MariaDB, RabbitMQ and Swift servers are set up and run.

Small and quick to start, but with every guard of durability on: tests kill them and then look
for what was committed. Only a server that nobody harms may be ``VOLATILE``. Standard library only.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from tests import ROOT
from tests.support import rabbitmq
from tests.support.processes import account, run

_ADVICE: Final = "tools/setup.sh and the folder's file needs say what installs it; or run: make test"


# The certificates that sign those of clients, where a server shall ask for them.
CLIENTS: Final = "clients.pem"
# The file of a database server that does not wait for the disk, and does not tidy up behind short tests.
VOLATILE: Final = "volatile"


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
        self._versions = sorted(Path("/usr/lib/postgresql").glob("[0-9]*/bin"), key=_version, reverse=True)
        self._initdb = self.program("initdb")
        self._postgres = self.program("postgres")
        self._isready = self.program("pg_isready")

    def program(self, name: str) -> str:
        """Return where a program of the newest version is."""
        return _program(name, self._versions)

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
        if (directory / VOLATILE).exists():
            settings |= {"fsync": "off", "full_page_writes": "off", "autovacuum": "off"}
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
        guarded = not (directory / VOLATILE).exists()
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
            f"--innodb-flush-log-at-trx-commit={1 if guarded else 2}",
            f"--innodb-doublewrite={int(guarded)}",
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
        self.user: str | None = None
        root = ROOT
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


class Rabbitmq:
    """``guest`` may do everything in the virtual host ``/``; it listens on 127.0.0.1 only."""

    def __init__(self) -> None:
        self.user: str | None = None
        if not rabbitmq.is_installed():
            raise MissingServerError("the tests need RabbitMQ; run: tools/setup.sh rabbitmq")

    def install(self, directory: Path) -> None:
        """It makes what it needs when it starts."""

    def command(self, directory: Path, port: int) -> list[str]:
        return rabbitmq.command(directory, port)

    def answers(self, port: int) -> bool:
        return rabbitmq.answers(port)


class Etcd:
    """One member; with TLS on a second port if it has files for that.

    Its elections are short, because a session lasts at least one and a half of them.
    """

    def __init__(self) -> None:
        self.user = account("etcd")
        self._server = _program("etcd", [])

    def install(self, directory: Path) -> None:
        """It makes what it needs when it starts."""

    def command(self, directory: Path, port: int) -> list[str]:
        clients, peers = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{_peer_port(port)}"
        tls = tls_files(directory)
        listened = f"{clients},https://127.0.0.1:{tls_port(port)}" if tls else clients
        return [
            self._server,
            f"--data-dir={directory / 'data'}",
            f"--listen-client-urls={listened}",
            f"--advertise-client-urls={clients}",
            f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=default={peers}",
            "--heartbeat-interval=50",
            "--election-timeout=500",
            *([f"--cert-file={tls[0]}", f"--key-file={tls[1]}"] if tls else []),
        ]

    def answers(self, port: int) -> bool:
        return b'"health":"true"' in _asked(port, b"GET /health HTTP/1.0\r\n\r\n")


class Zookeeper:
    """One server, with a tick so short that sessions of two seconds are possible; TLS as etcd."""

    def __init__(self) -> None:
        self.user = account("zookeeper")
        self._java = _program("java", [])
        self._jar = Path("/usr/share/java/zookeeper.jar")
        if not self._jar.exists():
            raise MissingServerError("the tests need the Debian package zookeeper; run: tools/setup.sh coordination")

    def install(self, directory: Path) -> None:
        """It makes what it needs when it starts."""

    def command(self, directory: Path, port: int) -> list[str]:
        configuration = directory / "zoo.cfg"
        configuration.write_text(
            f"dataDir={directory / 'data'}\nclientPort={port}\nclientPortAddress=127.0.0.1\ntickTime=500\n"
            "admin.enableServer=false\n4lw.commands.whitelist=ruok\n" + self._secured(directory, port)
        )
        options = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        paths = [self._jar, *self._jar.parent.glob("netty-codec.jar"), *self._jar.parent.glob("netty-resolver.jar")]
        return [self._java, *options, "-cp", ":".join(map(str, paths)), main, str(configuration)]

    def _secured(self, directory: Path, port: int) -> str:
        if not (tls := tls_files(directory)):
            return ""
        both = directory / "tls.pem"  # a key store is one file
        both.write_bytes(tls[1].read_bytes() + tls[0].read_bytes())
        both.chmod(0o644)
        return (
            f"secureClientPort={tls_port(port)}\nsecureClientPortAddress=127.0.0.1\nssl.clientAuth=none\n"
            "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n"
            f"ssl.keyStore.location={both}\nssl.trustStore.location={tls[0]}\nssl.trustStore.type=PEM\n"
        )

    def answers(self, port: int) -> bool:
        return _asked(port, b"ruok") == b"imok"


class Redis:
    """As etcd; without persistence: after a restart it has forgotten everything, which clients must survive."""

    def __init__(self) -> None:
        self.user = account("redis")
        self._server = _program("redis-server", [])

    def install(self, directory: Path) -> None:
        """It makes what it needs when it starts."""

    def command(self, directory: Path, port: int) -> list[str]:
        where = ["--bind", "127.0.0.1", "--port", str(port), "--dir", str(directory)]
        if tls := tls_files(directory):
            where += ["--tls-port", str(tls_port(port)), "--tls-cert-file", str(tls[0]), "--tls-key-file", str(tls[1])]
            where += ["--tls-ca-cert-file", str(tls[0]), "--tls-auth-clients", "no"]
        return [self._server, *where, "--save", "", "--appendonly", "no"]

    def answers(self, port: int) -> bool:
        return _asked(port, b"PING\r\n").startswith(b"+PONG")


# Further ports, from that for clients: above those that the kernel gives to outgoing connections.
def tls_port(port: int) -> int:
    """Return the port for TLS of an etcd, a ZooKeeper or a Redis."""
    return 63_000 + port % 2_500


def _peer_port(port: int) -> int:
    return 61_000 + port % 2_000


def _asked(port: int, request: bytes) -> bytes:
    """Return the beginning of the answer, b"" if there is none."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
            connection.sendall(request)
            found = b""
            while more := connection.recv(1024):
                found += more
                if found.startswith((b"imok", b"+PONG")):
                    break
            return found
    except OSError:
        return b""


KINDS: Final[dict[str, Callable[[], Daemon]]] = {
    "postgresql": Postgresql,
    "mariadb": Mariadb,
    "swift": Swift,
    "rabbitmq": Rabbitmq,
    "etcd": Etcd,
    "zookeeper": Zookeeper,
    "redis": Redis,
}


def _program(name: str, directories: list[Path]) -> str:
    path = os.pathsep.join([*map(str, directories), os.environ.get("PATH", os.defpath), "/usr/sbin"])
    found = shutil.which(name, path=path)
    if found is None:
        raise MissingServerError(f"the tests need {name}, which is not installed; {_ADVICE}")
    return found


def _version(directory: Path) -> int:
    return int(re.sub(r"\D.*", "", directory.parent.name))
