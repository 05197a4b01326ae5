"""Networks that can be cut between one process of the service and the servers that it needs.

As root: a network namespace for each process that is to be cut off, with one veth pair to the database and
one to the BMCs; cutting takes the process's end of the database's link down, so its packets are lost and nobody
is told. Elsewhere: a forwarder of its own, stopped with SIGSTOP. No packet leaves the host.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

from tests import ROOT
from tests.support.installation import Played
from tests.support.processes import free_port

_OURS: Final = re.compile(r"^fs\d+n\d+", re.MULTILINE)


class Network(Protocol):
    """Where one process lives: what it runs under, and at which address it finds the database."""

    database: str
    prefix: Sequence[str]

    def cut(self) -> None:
        """From now on nothing passes between the process and the database, in either direction."""

    def heal(self) -> None:
        """Everything passes again."""

    def close(self) -> None:
        """Leave nothing behind."""


def _forwarder(directory: Path, name: str, pairs: Sequence[str], prefix: Sequence[str] = ()) -> Played:
    """Start the process that forwards; it dies with this one."""
    started = Played(
        name, directory, [*prefix, sys.executable, "-m", "tests.support.cluster.forward", *pairs], cwd=ROOT
    )
    started.wait_ready()
    return started


class Muted:
    """Without root: the database is reached through a forwarder, and cutting stops that."""

    prefix: Sequence[str] = ()

    def __init__(self, directory: Path, number: int, *, database: str, bmcs: str) -> None:
        port = free_port()
        self.database = f"127.0.0.1:{port}"
        self._forwarder = _forwarder(directory, f"forward-{number}", [self.database, database])

    def cut(self) -> None:
        self._forwarder.freeze()

    def heal(self) -> None:
        self._forwarder.thaw()

    def close(self) -> None:
        self._forwarder.end()


class Namespace:
    """With root: a network namespace with two links, one to the database and one to the BMCs."""

    def __init__(self, directory: Path, number: int, *, database: str, bmcs: str) -> None:
        # Names and addresses are those of this test process.
        self._pid, self._number = os.getpid(), number
        self._name = f"fs{self._pid}n{number}"
        subnet = _subnet()
        self._hosts = [f"{subnet}.{(2 * number + link) * 4 + 1}" for link in (0, 1)]
        self._guests = [f"{subnet}.{(2 * number + link) * 4 + 2}" for link in (0, 1)]
        self.prefix: Sequence[str] = ("ip", "netns", "exec", self._name)
        self._forwarders: list[Played] = []
        try:
            self._create(f"{subnet}.0/24")
            self.database = f"{self._hosts[0]}:{database.rpartition(':')[2]}"
            there = f"{self._hosts[1]}:{bmcs.rpartition(':')[2]}"
            self._forwarders.append(_forwarder(directory, f"forward-{number}", [self.database, database, there, bmcs]))
            # Nodes name their BMC's address, and it is that of the namespace's own loopback.
            self._forwarders.append(_forwarder(directory, f"forward-{number}-bmcs", [bmcs, there], self.prefix))
        except BaseException:
            self.close()
            raise

    def cut(self) -> None:
        _ip("-n", self._name, "link", "set", "g0", "down")

    def heal(self) -> None:
        _ip("-n", self._name, "link", "set", "g0", "up")

    def close(self) -> None:
        for forwarder in self._forwarders:
            forwarder.end()
        # The links go with the namespace; that takes the kernel a moment, so not by name alone.
        for link in (0, 1):
            _ip("link", "delete", self._host_end(link), check=False)
        _ip("netns", "delete", self._name, check=False)

    def _create(self, subnet: str) -> None:
        # What is for a link that is down must not go elsewhere.
        _ip("route", "add", "blackhole", subnet, "metric", "9999", check=False)
        _ip("netns", "add", self._name)
        _ip("-n", self._name, "link", "set", "lo", "up")
        for link, (host, guest) in enumerate(zip(self._hosts, self._guests, strict=True)):
            end = self._host_end(link)
            _ip("link", "add", end, "type", "veth", "peer", "name", f"g{link}", "netns", self._name)
            _ip("address", "add", f"{host}/30", "dev", end)
            _ip("link", "set", end, "up")
            _ip("-n", self._name, "address", "add", f"{guest}/30", "dev", f"g{link}")
            _ip("-n", self._name, "link", "set", f"g{link}", "up")

    def _host_end(self, link: int) -> str:
        return f"fs{self._pid}n{self._number}l{link}"


def forget_routes() -> None:
    """Remove the route that kept packets of this process's namespaces from going elsewhere."""
    _ip("route", "delete", "blackhole", f"{_subnet()}.0/24", check=False)


def sweep() -> None:
    """Remove the namespaces of test processes that were killed before they could do so; links go with them."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=False).stdout
    for name in _OURS.findall(listed):
        if not Path(f"/proc/{name.partition('n')[0].removeprefix('fs')}").exists():
            _ip("netns", "delete", name, check=False)


def build(directory: Path, number: int, *, database: str, bmcs: str) -> Network:
    """Return the network of the process ``number``; addresses are ``IP:PORT``."""
    if os.geteuid() != 0:
        return Muted(directory, number, database=database, bmcs=bmcs)
    sweep()
    return Namespace(directory, number, database=database, bmcs=bmcs)


def _subnet() -> str:
    pid = os.getpid()
    return f"10.{200 + pid % 50}.{(pid // 50) % 256}"


def _ip(*words: str, check: bool = True) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if check and done.returncode:
        raise RuntimeError(f"ip {' '.join(words)}: {done.stderr.strip()}")
