"""Three etcd members behind a gateway, as ``etcd gateway`` on each host: one of them may die, and the service goes on.

It has the methods of ``tests.support.servers.Server`` that harm and repair all of it, and ``kill_one``.
"""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from tests.support.daemons import Etcd
from tests.support.processes import Harmable, free_port, spawn, until
from tests.support.servers import common_directory

_NAMES: Final = ("one", "two", "three")


class Member(Harmable):
    """One etcd; its data stays when it is killed."""

    def __init__(self, name: str, base: Path, user: str | None) -> None:
        self.name = name
        self.directory = base / name
        self.directory.mkdir()
        if user is not None:
            shutil.chown(self.directory, user)
        self.port, self.peer_port = free_port(), free_port()
        self._user = user

    @property
    def peer(self) -> str:
        return f"{self.name}=http://127.0.0.1:{self.peer_port}"

    def start(self, members: str) -> None:
        clients, peers = f"http://127.0.0.1:{self.port}", f"http://127.0.0.1:{self.peer_port}"
        command = [
            "etcd", f"--name={self.name}", f"--data-dir={self.directory / 'data'}", f"--listen-client-urls={clients}",
            f"--advertise-client-urls={clients}", f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}", f"--initial-cluster={members}",
            "--heartbeat-interval=100", "--election-timeout=1000",
        ]  # fmt: skip
        self.process = spawn(command, user=self._user, directory=self.directory, log=self.directory / "etcd.log")


class EtcdCluster:
    """``port`` is the gateway's, which leads to a member that answers."""

    kind: Final = "etcd"

    def __init__(self) -> None:
        self._daemon = Etcd()
        self._base = common_directory("etcd")
        self._members = [Member(name, self._base, self._daemon.user) for name in _NAMES]
        self.port = free_port()
        self._gateway: subprocess.Popen[bytes] | None = None
        self.start()
        endpoints = ",".join(f"127.0.0.1:{member.port}" for member in self._members)
        command = ["etcd", "gateway", "start", f"--endpoints={endpoints}", f"--listen-addr=127.0.0.1:{self.port}"]
        self._gateway = spawn(
            [*command, "--retry-delay=1s"], user=self._daemon.user, directory=self._base, log=self._base / "gateway.log"
        )
        if not until(lambda: self._daemon.answers(self.port)):
            raise RuntimeError("etcd's gateway does not answer")

    def start(self) -> None:
        """Start the members that do not run; return when all of them answer."""
        cluster = ",".join(member.peer for member in self._members)
        for member in self._members:
            if member.process is None:
                member.start(cluster)
        if not until(lambda: all(self._daemon.answers(member.port) for member in self._members)):
            raise RuntimeError(f"the members of etcd do not find each other, see {self._base}")

    def kill_one(self) -> None:
        """Kill a member; the others go on, after an election if it led."""
        random.choice(self._members).kill()

    def kill(self) -> None:
        for member in self._members:
            member.kill()

    def freeze(self) -> None:
        for member in self._members:
            member.freeze()

    def thaw(self) -> None:
        for member in self._members:
            member.thaw()

    def close(self) -> None:
        if self._gateway is not None:
            self._gateway.kill()
            self._gateway.wait()
        for member in self._members:
            with suppress(AssertionError):
                member.thaw()
            member.kill()
        shutil.rmtree(self._base, ignore_errors=True)


@contextmanager
def etcd_cluster() -> Iterator[EtcdCluster]:
    """Give a running cluster."""
    made = EtcdCluster()
    try:
        yield made
    finally:
        made.close()
