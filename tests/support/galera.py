"""A MariaDB Galera cluster of two nodes and an arbiter, on loopback, behind HAProxy as in deploy/.

A node that was killed is started again from where its own files end, so it fetches what it missed (IST), or everything
with rsync (SST) if those files are gone.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pymysql

from tests import ROOT
from tests.support.daemons import Mariadb, MissingServerError
from tests.support.processes import Harmable, free_port, run, spawn, until
from tests.support.servers import common_directory

SHIPPED: Final = ROOT / "deploy/haproxy/galera.cfg"
_DATABASE: Final = "ferroscope"
_TIMES: Final = (
    "evs.suspect_timeout=PT1S;evs.inactive_timeout=PT3S;evs.inactive_check_period=PT0.3S;evs.keepalive_period=PT0.3S"
)
_RECOVERED: Final = re.compile(r"Recovered position: ?(\S+)")


class Node(Harmable):
    """One node: its directory, its ports, and its process while it runs."""

    def __init__(self, name: str, directory: Path, daemon: Mariadb) -> None:
        self.name = name
        self.directory = directory
        self._daemon = daemon
        self.port, self.group, self._ist, self._sst = (free_port() for _ in range(4))
        self.log = directory / "server.log"

    def start(self, address: str, *, new: bool = False) -> None:
        """Run it; ``wait_ready`` tells when it is a part of the cluster."""
        words = ["--wsrep-new-cluster"] if new else []
        if not new and (position := self._recovered(address)):
            words = [f"--wsrep-start-position={position}"]
        self.process = spawn(
            [*self._command(address), *words], user=self._daemon.user, directory=self.directory, log=self.log
        )

    def wait_ready(self) -> None:
        process = self.process
        assert process is not None
        if not until(lambda: process.poll() is not None or self.is_ready()) or process.poll() is not None:
            raise RuntimeError(f"{self.name} does not become ready:\n{self.log.read_text(errors='replace')[-4000:]}")

    def is_ready(self) -> bool:
        """Whether it accepts statements."""
        try:
            return self.status("wsrep_ready") == "ON"
        except pymysql.err.Error:
            return False

    def status(self, name: str) -> str:
        return str(self.query(f"SHOW GLOBAL STATUS LIKE '{name}'")[0][1])

    def query(self, statement: str, database: str | None = None) -> Any:
        """Return the rows; each statement is a transaction."""
        with self.session(database) as session:
            session.execute(statement)
            return session.fetchall()

    @contextmanager
    def session(self, database: str | None = None) -> Iterator[Any]:
        """Give the cursor of a new connection."""
        with (
            pymysql.connect(
                host="127.0.0.1", port=self.port, user="root", database=database, autocommit=True, connect_timeout=2,
                read_timeout=10,
            ) as connection,
            connection.cursor() as cursor,
        ):  # fmt: skip
            yield cursor

    def isolate(self, *, on: bool) -> None:
        """Cut it off from the other nodes, not from its clients."""
        self.query(f"SET GLOBAL wsrep_provider_options = 'gmcast.isolate={int(on)}'")

    def forget(self) -> None:
        """Lose the files, while it does not run: the next start copies everything from another node."""
        (self.directory / "data" / "grastate.dat").unlink()

    def transfers(self) -> tuple[int, int]:
        """Return how often it fetched what it missed (IST), and everything (SST)."""
        log = self.log.read_text(errors="replace")
        return len(re.findall("IST received:", log)), len(re.findall("SST received:", log))

    def _recovered(self, address: str) -> str:
        """Return where the files of the node end; a killed one has not written that down."""
        if not (self.directory / "data" / "grastate.dat").exists():
            return ""
        log = self.directory / "recover.log"
        log.unlink(missing_ok=True)
        command = [*self._command(address), "--wsrep-recover", f"--log-error={log}"]
        with suppress(RuntimeError):
            run(command, user=self._daemon.user, directory=self.directory)
        found = _RECOVERED.findall(log.read_text(errors="replace"))
        return str(found[-1]) if found else ""

    def _command(self, address: str) -> list[str]:
        options = (
            f"gmcast.listen_addr=tcp://127.0.0.1:{self.group};ist.recv_addr=127.0.0.1:{self._ist};gcache.size=64M;"
            + _TIMES
        )
        return [
            *self._daemon.command(self.directory, self.port),
            "--binlog-format=ROW",
            "--innodb-autoinc-lock-mode=2",
            "--wsrep-on=ON",
            f"--wsrep-provider={_library()}",
            "--wsrep-cluster-name=ferroscope",
            f"--wsrep-cluster-address={address}",
            f"--wsrep-node-name={self.name}",
            f"--wsrep-node-address=127.0.0.1:{self.group}",
            f"--wsrep-node-incoming-address=127.0.0.1:{self.port}",
            "--wsrep-sst-method=rsync",
            f"--wsrep-sst-receive-address=127.0.0.1:{self._sst}",
            f"--wsrep-provider-options={options}",
        ]


class Galera:
    """``nodes``; ``url`` leads to both through HAProxy: to the first one that is up, or to all of them."""

    def __init__(self, *, several_writers: bool) -> None:
        self.directory = common_directory("galera")
        self._daemon = daemon = Mariadb()
        self.nodes = [self._node(name) for name in ("one", "two")]
        self._arbiter_port, self.port = free_port(), free_port()
        self._several = several_writers
        self._processes: list[subprocess.Popen[bytes]] = []
        first, second = self.nodes
        daemon.install(first.directory)
        run(["cp", "-a", str(first.directory / "data"), str(second.directory)], user=None, directory=self.directory)
        first.start(self.address, new=True)
        first.wait_ready()
        first.query(f"CREATE DATABASE {_DATABASE} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
        first.query("CREATE USER haproxy@'127.0.0.1'")
        first.query("CREATE DATABASE whole")
        first.query("CREATE TABLE whole.written (node VARCHAR(9) PRIMARY KEY)")
        self._start_arbiter()
        second.start(self.address)
        self._start_balancer()
        self.wait_ready()

    @property
    def address(self) -> str:
        return "gcomm://" + ",".join(f"127.0.0.1:{node.group}" for node in self.nodes)

    @property
    def url(self) -> str:
        """The URL through HAProxy."""
        return f"mysql+pymysql://root@127.0.0.1:{self.port}/{_DATABASE}"

    def url_of(self, node: Node) -> str:
        return f"mysql+pymysql://root@127.0.0.1:{node.port}/{_DATABASE}"

    def wait_ready(self) -> None:
        """Wait until both nodes and the arbiter form the cluster."""
        for node in self.nodes:
            node.wait_ready()
        if not until(self._is_whole):
            sizes = [node.status("wsrep_cluster_size") for node in self.nodes]
            raise RuntimeError(f"the nodes see {sizes} members instead of 3")

    def _is_whole(self) -> bool:
        """Whether each node commits among three; one that was cut off a moment ago still says that it is ready."""
        try:
            for node in self.nodes:
                node.query(f"REPLACE INTO whole.written VALUES ('{node.name}')")
            return all(node.status("wsrep_cluster_size") == "3" for node in self.nodes)
        except pymysql.err.Error:
            return False

    def restart(self, node: Node) -> None:
        """Start a killed node; it joins the cluster."""
        node.start(self.address)

    def close(self, *, keep: bool = False) -> None:
        """End all; ``keep``: leave files and logs behind."""
        for process in self._processes:
            process.kill()
            process.wait()
        for node in self.nodes:
            if node.process is not None:
                node.thaw()
            node.kill()
        if not keep:
            shutil.rmtree(self.directory, ignore_errors=True)

    def _node(self, name: str) -> Node:
        directory = self.directory / name
        directory.mkdir()
        if self._daemon.user is not None:
            shutil.chown(directory, self._daemon.user)
        return Node(name, directory, self._daemon)

    def _start_arbiter(self) -> None:
        options = f"gmcast.listen_addr=tcp://127.0.0.1:{self._arbiter_port};{_TIMES}"
        command = [_found("garbd"), "--address", self.address, "--group", "ferroscope", "--options", options]
        self._run(command, "arbiter")

    def _start_balancer(self) -> None:
        text = SHIPPED.read_text().replace("bind 127.0.0.1:3306", f"bind 127.0.0.1:{self.port}")
        for example, node in zip(("192.0.2.21:3306", "192.0.2.22:3306"), self.nodes, strict=True):
            text = text.replace(example, f"127.0.0.1:{node.port}")
        if self._several:
            text = text.replace(" backup\n", "\n").replace(
                "option tcp-check\n", "option tcp-check\n    balance leastconn\n"
            )
        config = self.directory / "haproxy.cfg"
        config.write_text(text)
        self._run([_found("haproxy"), "-db", "-f", str(config)], "haproxy")

    def _run(self, command: list[str], name: str) -> None:
        log = self.directory / f"{name}.log"
        self._processes.append(spawn(command, user=None, directory=self.directory, log=log))


@contextmanager
def galera(*, several_writers: bool = False) -> Iterator[Galera]:
    """Give a running cluster."""
    made = Galera(several_writers=several_writers)
    try:
        yield made
    except BaseException as exc:
        made.close(keep=True)
        exc.add_note(f"the logs of its nodes are in {made.directory}")
        raise
    made.close()


def _found(program: str) -> str:
    found = shutil.which(program, path=os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin"]))
    if found is None:
        raise MissingServerError(f"the tests need {program}, which is not installed; run: tools/setup.sh galera")
    return found


def _library() -> Path:
    found = next(iter(sorted(Path("/usr/lib").glob("galera/libgalera_smm.so"))), None)
    if found is None:
        raise MissingServerError("the tests need the Debian package galera-4; run: tools/setup.sh galera")
    return found
