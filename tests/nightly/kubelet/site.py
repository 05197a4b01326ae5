"""What a site has outside of its cluster: a PostgreSQL, and a load balancer before the Service of the api."""

from __future__ import annotations

import itertools
import select
import shutil
import signal
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import psycopg
import requests

from tests.support.daemons import Postgresql
from tests.support.kubernetes import Cluster
from tests.support.kubernetes_node import GATEWAY
from tests.support.processes import signal_tree, spawn, until
from tests.support.servers import common_directory

_PASSWORD: Final = "of-the-database"
_PORT: Final = 5432


class Database:
    """A PostgreSQL that pods reach with a password; ``database`` makes an empty database in it."""

    def __init__(self, directory: Path) -> None:
        self._names = (f"ferroscope{number}" for number in itertools.count(1))
        daemon = Postgresql()
        if daemon.user is not None:
            shutil.chown(directory, daemon.user)
        daemon.install(directory)
        access = directory / "data/pg_hba.conf"
        access.write_text(access.read_text() + "host all all 10.30.0.0/15 scram-sha-256\n")
        command = [*daemon.command(directory, _PORT), "-c", "listen_addresses=*"]
        self._process = spawn(command, user=daemon.user, directory=directory, log=directory / "server.log")
        if not until(lambda: daemon.answers(_PORT)):
            raise RuntimeError((directory / "server.log").read_text()[-3000:])
        self._execute(f"ALTER ROLE ferroscope PASSWORD '{_PASSWORD}'")

    def database(self) -> str:
        """Make a database; return how pods connect to it."""
        name = next(self._names)
        self._execute(f"CREATE DATABASE {name} TEMPLATE template0")
        return f"postgresql://ferroscope:{_PASSWORD}@{GATEWAY}/{name}"

    def kill(self) -> None:
        signal_tree(self._process.pid, signal.SIGKILL)
        self._process.wait()

    @staticmethod
    def _execute(statement: str) -> None:
        with psycopg.connect("host=127.0.0.1 user=ferroscope dbname=postgres", autocommit=True) as connection:
            connection.execute(statement.encode())


@contextmanager
def postgresql() -> Iterator[Database]:
    """Give one, in the network in which this is called."""
    directory = common_directory("site")
    try:
        database = Database(directory)
        try:
            yield database
        finally:
            database.kill()
    finally:
        shutil.rmtree(directory)


@contextmanager
def load_balancer(cluster: Cluster, service: str, port: int) -> Iterator[str]:
    """Give the URL at which each connection goes to one of the ready pods of a Service, in turn."""
    path = f"/api/v1/namespaces/ferroscope/endpoints/{service}"
    turns = itertools.count()

    def connected() -> socket.socket:
        """Connect to a pod: to another one if it does not answer, as HAProxy does that redispatches."""
        (subset,) = cluster.call("GET", path)["subsets"][:1]
        ready = sorted(one["ip"] for one in subset["addresses"])
        first = next(turns)
        for number in range(len(ready)):
            with suppress(OSError):
                return socket.create_connection((ready[(first + number) % len(ready)], port), timeout=2)
        raise OSError(f"none of {ready} answers")

    class Client(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with suppress(OSError, requests.RequestException, ValueError, KeyError), connected() as pod:
                pod.settimeout(None)
                _pump(self.request, pod)

    class Balancer(socketserver.ThreadingTCPServer):
        allow_reuse_address = daemon_threads = True
        request_queue_size = 128

    with Balancer((GATEWAY, port), Client) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://{GATEWAY}:{port}"
        finally:
            server.shutdown()
            thread.join()


def _pump(one: socket.socket, other: socket.socket) -> None:
    """Carry bytes both ways until both sides have nothing more to say."""
    peers, open_ = {one: other, other: one}, [one, other]
    while open_:
        for ready in select.select(open_, [], [])[0]:
            if content := ready.recv(65536):
                peers[ready].sendall(content)
            else:
                open_.remove(ready)
                peers[ready].shutdown(socket.SHUT_WR)
