"""A PostgreSQL primary with a standby, which fail over by script: ``pg_promote``, then a new standby in the old place.

The failed primary is never started again on its old data: it is copied anew from its successor, as ``pg_basebackup``
does. Each server keeps its port, so that one connection URL with both is good for every fail-over.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from tests.support.daemons import Postgresql
from tests.support.processes import Harmable, free_port, run, spawn, until
from tests.support.servers import common_directory

_DATABASE = "ferroscope"


class Member(Harmable):
    """One of the two servers: its directory, its port, and its process while it runs."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = free_port()

    def run(self, *statements: str) -> None:
        """Run the statements, each as a transaction."""
        with self._connect() as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def query(self, statement: str, database: str = "postgres") -> Any:
        """Return the first column of the first row, or None."""
        with self._connect(database) as connection:
            row = connection.execute(statement.encode()).fetchone()
            return None if row is None else row[0]

    def _connect(self, database: str = "postgres") -> psycopg.Connection[Any]:
        conninfo = f"host=127.0.0.1 port={self.port} user=ferroscope dbname={database} connect_timeout=10"
        return psycopg.connect(conninfo, autocommit=True)


class Pair:
    """``primary`` and ``standby``; ``synchronous``: a commit is acknowledged when the standby has it on disk, too."""

    def __init__(self, *, synchronous: bool) -> None:
        self._daemon = Postgresql()
        self._synchronous = synchronous
        self._base = common_directory("pair")
        self.primary, self.standby = (self._member(name) for name in ("one", "two"))
        self._daemon.install(self.primary.directory)
        access = self.primary.directory / "data" / "pg_hba.conf"
        access.write_text(access.read_text() + "host replication all 127.0.0.1/32 trust\n")
        self.start(self.primary)
        self.primary.run(f"CREATE DATABASE {_DATABASE} TEMPLATE template0")
        self.replicate()

    @property
    def url(self) -> str:
        """The connection URL with both servers; whichever accepts writes is used."""
        ports = sorted((self.primary.port, self.standby.port))
        places = ",".join(f"127.0.0.1:{port}" for port in ports)
        return f"postgresql://ferroscope@{places}/{_DATABASE}?target_session_attrs=read-write"

    def start(self, member: Member) -> None:
        """Run a server and wait until it takes connections."""
        command = self._daemon.command(member.directory, member.port)
        settings = {"wal_level": "replica", "max_wal_senders": "5", "hot_standby": "on"}
        # A promotion that arrives while the standby waits for its next try to reach the primary waits until it ends.
        settings["wal_retrieve_retry_interval"] = "500ms"
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        log = member.directory / "server.log"
        process = spawn(command, user=self._daemon.user, directory=member.directory, log=log)
        member.process = process
        until(lambda: process.poll() is not None or self._daemon.answers(member.port))
        if process.poll() is not None:
            raise RuntimeError(f"PostgreSQL did not start:\n{log.read_text()[-4000:]}")

    def replicate(self) -> None:
        """Make the standby anew from the primary, and wait until it follows."""
        standby, source = self.standby, self.primary
        standby.kill()
        shutil.rmtree(standby.directory / "data", ignore_errors=True)
        place = f"host=127.0.0.1 port={source.port} user=ferroscope application_name=standby"
        copy = [self._daemon.program("pg_basebackup"), "-d", place, "-D", str(standby.directory / "data")]
        run([*copy, "-R", "-c", "fast", "--no-sync"], user=self._daemon.user, directory=standby.directory)
        self.start(standby)
        state = "SELECT state FROM pg_stat_replication"
        if not until(lambda: bool(source.query(state) == "streaming")):
            raise RuntimeError("the standby does not follow")
        if self._synchronous:
            source.run("ALTER SYSTEM SET synchronous_standby_names = 'standby'", "SELECT pg_reload_conf()")
            if not until(lambda: bool(source.query("SELECT sync_state FROM pg_stat_replication") == "sync")):
                raise RuntimeError("the standby is not synchronous")

    def fail_over(self) -> None:
        """Kill the primary and promote the standby, which waits for no other; the dead one is not brought back."""
        self.primary.kill()
        self.promote()

    def promote(self) -> None:
        """Make the standby the primary, whatever the other one does."""
        self.standby.run(
            "ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()", "SELECT pg_promote(true, 60)"
        )
        self.primary, self.standby = self.standby, self.primary

    def close(self) -> None:
        for member in (self.primary, self.standby):
            member.kill()
        shutil.rmtree(self._base)

    def _member(self, name: str) -> Member:
        directory = self._base / name
        directory.mkdir()
        if self._daemon.user is not None:
            shutil.chown(directory, self._daemon.user)
        return Member(directory)


@contextmanager
def pair(*, synchronous: bool = True) -> Iterator[Pair]:
    """Give a running pair."""
    made = Pair(synchronous=synchronous)
    try:
        yield made
    finally:
        made.close()
