"""``python -m tests.support.cluster.lost_answers --nodes 100 --share 0.05``: PostgreSQL commits, and nobody is told.

A proxy between the api and the database cuts the connection instead of passing on the answer to the COMMIT of a
transaction that has inserted something. A client starts inspections and, with ``--share 1``, repeats each start after
its end with the same ``Idempotency-Key``. Exit code 1 if an answer said that nothing was changed although it was, or if
a machine was inspected twice.
"""

from __future__ import annotations

import contextlib
import random
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

import click
from sqlalchemy import Engine, text

from tests.support import databases
from tests.support.cluster.cluster import Cluster, Plan, pool
from tests.support.processes import until

_STATES: Final = text("SELECT state FROM inspections")
_BEGUN: Final = text("SELECT COUNT(*) FROM inspections i JOIN nodes n ON n.uuid = i.node WHERE n.name = :name")
_TWICE: Final = text("SELECT COUNT(*) FROM (SELECT node FROM inspections GROUP BY node HAVING COUNT(*) > 1) AS twice")


class Cutter:
    """The proxy. It cuts this ``share`` of the answers to COMMIT; ``cuts`` so far."""

    def __init__(self, port: int, seed: int) -> None:
        self.share, self.cuts = 0.0, 0
        self._port = port
        self._chance = random.Random(seed)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._port))
                threading.Thread(target=self._pump, args=(near, far), daemon=True).start()
                threading.Thread(target=self._pump, args=(far, near, True), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, answers: bool = False) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 20):
                if answers and b"COMMIT\0" in data and b"INSERT 0" in data and self._chance.random() < self.share:
                    self.cuts += 1
                    break
                target.sendall(data)
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


class CutCluster(Cluster):
    """Its api reaches the database by the proxy, its workers directly."""

    def __init__(self, directory: Path, url: str, plan: Plan, cutter: Cutter, port: int) -> None:
        super().__init__(directory, url, plan)
        self._cutter, self._database_port = cutter, port

    def _configure(self, name: str, *arguments: Any, **more: Any) -> Path:
        path = super()._configure(name, *arguments, **more)
        if name.startswith("api"):
            path.write_text(path.read_text().replace(f":{self._database_port}/", f":{self._cutter.port}/"))
        return path


class Client:
    """Starts inspections, and counts what it is told; ``lies``: that nothing was changed, although it was."""

    def __init__(self, cluster: Cluster, engine: Engine) -> None:
        self._cluster, self._engine, self._http = cluster, engine, pool()
        self.told: Counter[int] = Counter()
        self.lies = 0

    def start(self, name: str, key: str) -> int:
        """Ask once, and return the status."""
        answer = self._http.request(
            "PUT",
            f"{self._cluster.url}/v1/nodes/{name}/states/provision",
            json={"target": "inspect"},
            headers={"X-OpenStack-Ironic-API-Version": "1.95", "Idempotency-Key": key},
        )
        self.told[answer.status] += 1
        self.lies += answer.status == 503 and self._count(_BEGUN, name=name) > 0
        return int(answer.status)

    def insist(self, name: str, key: str) -> None:
        """Ask until it is accepted, with the same key."""
        while self.start(name, key) != 202:
            time.sleep(1)

    def _count(self, statement: Any, **values: str) -> int:
        with self._engine.connect() as connection:
            return int(connection.execute(statement, values).scalar_one())

    def twice(self) -> int:
        return self._count(_TWICE)

    def ends(self) -> Counter[str]:
        with self._engine.connect() as connection:
            return Counter(connection.execute(_STATES).scalars())

    def wait(self) -> None:
        """Wait until no inspection is in progress."""
        assert until(lambda: set(self.ends()) <= {"finished", "error"}, seconds=120), self.ends()


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--nodes", default=100, show_default=True)
@click.option("--share", default=0.05, show_default=True, help="Of the answers to COMMIT that are cut.")
@click.option("--seed", default=1, show_default=True)
def main(nodes: int, share: float, seed: int) -> None:
    """Cut answers to COMMIT, and count what the api says of them and what has become of them."""
    with databases.private("postgresql") as (url, server), tempfile.TemporaryDirectory() as directory:
        cutter = Cutter(server.port, seed)
        plan = Plan(apis=1, workers=2, nodes=nodes, boot=0.5, bmc=0.05)
        with CutCluster(Path(directory), url, plan, cutter, server.port) as cluster, databases.opened(url) as engine:
            client = Client(cluster, engine)
            cutter.share = share
            for name in cluster.names:
                client.insist(name, f"start-{name}")
            cutter.share = 0.0
            client.wait()
            if share == 1:
                for name in cluster.names:
                    client.insist(name, f"start-{name}")
                client.wait()
            ends, twice = client.ends(), client.twice()
        cutter.close()
    click.echo(
        f"{cutter.cuts} answers to COMMIT cut; the api answered {dict(client.told)}, {client.lies} times wrongly"
    )
    click.echo(f"{sum(ends.values())} inspections of {nodes} nodes: {dict(ends)}; {twice} machines inspected twice")
    sys.exit(1 if client.lies or twice or set(ends) != {"finished"} else 0)


if __name__ == "__main__":
    main()
