"""A boot network whose hosts have a PXE filter each, and the database that says who may boot.

The nodes are written as the API and the workers write them: states by ``transition``, ports by the store.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from bench.service import executable
from ferroscope import transition
from ferroscope.config.options import BusSettings, DatabaseSettings, Settings
from ferroscope.contracts.store import Query
from ferroscope.core.boot_macs import FilterRecord, decode_record
from ferroscope.core.model import Lease, Node
from ferroscope.core.states import Event, Transition
from ferroscope.db import Transaction
from ferroscope.runtime.backend import open_backend
from ferroscope.runtime.system import SystemClock
from ferroscope_client.core.states import Provision, State
from tests.support import examples
from tests.support.processes import until
from tests.support.pxe.host import BootHost
from tests.support.pxe.lab import MANAGEMENT, Lab

T = TypeVar("T")

# For every wait that is not itself measured: on a busy machine, a process alone may take several seconds to start.
READY = 30.0

FAST = "[lease]\nprofile = fast\n[worker]\nmember_ttl = 3\n"


class FilteredLab:
    """``url`` is the database as this process reaches it; ``options`` are lines for ``[pxe_filter]``.

    ``broker``: the port of a RabbitMQ that wakes up filters.
    """

    def __init__(self, lab: Lab, url: str, *, options: str = "", sections: str = "", broker: int = 0) -> None:
        self.lab = lab
        self.hosts = lab.hosts
        self._seen_by_hosts = lab.reach(url=url, broker=broker)
        self._options = options
        bus = BusSettings(exchange=examples.uuid(), transport_url=f"rabbit://127.0.0.1:{broker}/" if broker else "")
        self._sections = sections
        if broker:
            self._sections += f"[bus]\nexchange = {bus.exchange}\ntransport_url = rabbit://{MANAGEMENT}:{broker}/\n"
        self._backend = open_backend(
            Settings(database=DatabaseSettings(connection=url), bus=bus),
            clock=SystemClock(),
            stop=threading.Event(),
            listen=False,
        )
        lab.after(self._backend.close)

    def start(self, host: BootHost, *, options: str | None = None) -> None:
        """Start its filter, and when that is in place its dnsmasq: the order in which a host has to start them."""
        self.start_pxe_filter(host, options=options)
        host.start_dnsmasq()

    def start_pxe_filter(self, host: BootHost, *, options: str | None = None, path: Path | None = None) -> None:
        """Start its filter; ``path`` is where it finds programs first."""
        config = host.directory / "ferroscope.conf"
        wanted = self._options if options is None else options
        if "unknown_hosts" not in wanted:
            wanted += "\nunknown_hosts = allow"
        config.write_text(
            f"[database]\nconnection = {self._seen_by_hosts}\n{self._sections}\n"
            f"[pxe_filter]\ninterfaces = boot\n{wanted}\n"
        )
        program = None if path is None else ["env", f"PATH={path}:{os.environ['PATH']}", executable()]
        host.start_pxe_filter(config, program=program).wait_ready()

    def command(self, *words: str) -> list[str]:
        """Return the installed command with these words."""
        return [executable(), *words]

    def write(self, work: Callable[[Transaction], T]) -> T:
        return self._backend.store.write(work)

    def node(self, *macs: str, booting: bool = False) -> Node:
        """Enrol a node with these ports, as idle as a node can be, or under inspection."""
        node = examples.node(state=State.NONE, provision_state=Provision.MANAGEABLE)
        self.write(lambda tx: tx.nodes.add(node))
        self.write(lambda tx: tx.ports.add([examples.port(node, address=mac) for mac in macs]))
        if booting:
            self.inspect(node)
        return node

    def inspect(self, node: Node) -> float:
        """Begin an inspection; return when that was committed."""
        self.write(lambda tx: transition.start(tx, tx.nodes.get(node.uuid), inspection=examples.uuid(), process="test"))
        return time.monotonic()

    def finish(self, node: Node) -> None:
        """End the inspection, well."""
        move = Transition(State.PROCESSING, Event.FINISH, State.FINISHED)
        self.write(lambda tx: transition.apply(tx, tx.nodes.get(node.uuid), move))

    def delete_ports(self, node: Node) -> None:
        self.write(
            lambda tx: tx.ports.remove([port.uuid for port in tx.ports.list(Query(filters={"node": node.uuid}))])
        )

    def lease(self) -> Lease | None:
        leases = self._backend.store.read(lambda tx: tx.leases.list("pxe/"))
        return leases[0] if leases else None

    def record(self) -> FilterRecord:
        lease = self.lease()
        return decode_record(lease.data) if lease is not None and lease.remaining > 0 else FilterRecord()

    def wait_open(self, *, seconds: float = READY, but: BootHost | None = None) -> BootHost:
        """Return the host whose filter is open, by the firewall's own word; ``but`` does not count."""
        found: list[BootHost] = []

        def looked() -> bool:
            found[:] = [host for host in self.hosts if host is not but and is_open(host)]
            return bool(found)

        assert until(looked, seconds=seconds), f"no filter opened within {seconds} s: {self.lease()}"
        return found[0]

    def wait_applied(self) -> None:
        """Wait until the open filter has applied everything that was committed so far."""
        newest = self._backend.store.read(lambda tx: tx.macs.newest())
        assert until(lambda: self.record().has_applied(newest)), self.lease()


def is_open(host: BootHost) -> bool:
    """Whether the kernel lets anybody pass on this host."""
    listed = host.space.run("nft", "list", "set", "inet", "ferroscope_pxe_default", "open")
    return "expires" in listed.stdout
