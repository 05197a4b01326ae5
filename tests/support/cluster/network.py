"""Networks that can be cut between one process of the service and the servers that it needs.

As root: a network namespace for each process that is to be cut off, with a link to the database; cutting takes the
process's end of it down, so its packets are lost and nobody is told. Elsewhere: a forwarder of its own, stopped with
SIGSTOP. No packet leaves the host.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

from tests import ROOT
from tests.support.installation import Played
from tests.support.processes import free_port
from tests.support.pxe.netns import Netns, connect, sweep


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


def _forwarder(directory: Path, number: int, *pairs: str) -> Played:
    """Start the process that forwards; it dies with this one."""
    command = [sys.executable, "-m", "tests.support.cluster.forward", *pairs]
    started = Played(f"forward-{number}", directory, command, cwd=ROOT)
    started.wait_ready()
    return started


class Muted:
    """Without root: the database is reached through a forwarder, and cutting stops that."""

    prefix: Sequence[str] = ()

    def __init__(self, directory: Path, number: int, *, database: str, bmcs: str) -> None:
        port = free_port()
        self.database = f"127.0.0.1:{port}"
        self._forwarder = _forwarder(directory, number, self.database, database)

    def cut(self) -> None:
        self._forwarder.freeze()

    def heal(self) -> None:
        self._forwarder.thaw()

    def close(self) -> None:
        self._forwarder.end()


class Namespace:
    """With root: a network namespace with a link to the database; the BMCs are found where the nodes say."""

    def __init__(self, directory: Path, number: int, *, database: str, bmcs: str) -> None:
        port = database.rpartition(":")[2]
        self.database = f"10.0.0.1:{port}"
        with ExitStack() as ending:
            self._process = Netns(f"process{number}")
            ending.callback(self._process.close)
            server = Netns(f"server{number}")
            ending.callback(server.close)
            connect(self._process, "g0", server, "g1")
            self._process.ip("address", "add", "10.0.0.2/30", "dev", "g0")
            server.ip("address", "add", "10.0.0.1/30", "dev", "g1")
            there, own = f"{server.name}@{self.database}", f"{self._process.name}@{bmcs}"
            ending.callback(_forwarder(directory, number, there, database, own, bmcs).end)
            self._ending = ending.pop_all()
        self.prefix = self._process.prefix

    def cut(self) -> None:
        self._process.ip("link", "set", "g0", "down")

    def heal(self) -> None:
        self._process.ip("link", "set", "g0", "up")

    def close(self) -> None:
        self._ending.close()


def build(directory: Path, number: int, *, database: str, bmcs: str) -> Network:
    """Return the network of the process ``number``; addresses are ``IP:PORT``."""
    if os.geteuid() != 0:
        return Muted(directory, number, database=database, bmcs=bmcs)
    sweep()
    return Namespace(directory, number, database=database, bmcs=bmcs)
