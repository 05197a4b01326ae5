"""A boot network of namespaces: one switch, boot hosts with a dnsmasq each, DHCP clients, a management network.

    wire   the switch ``br0`` (10.77.0.1/24, fd77::1/64); where the machines' API calls come in
    bootN  a boot host: ``boot`` on the switch (10.77.0.1N, fd77::1N), ``mgmt`` on the other network
    mgmt   the switch of the management network (10.78.0.1/24), where the database and the API are found
    cX     a client: ``eth0`` on the switch, with a MAC of its own

Traffic never leaves the namespaces; ``tests.support.cluster.forward`` leads to the database and the API on 127.0.0.1.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from sqlalchemy import make_url

from tests import ROOT
from tests.support.installation import Installation
from tests.support.pxe import host_clock, netns
from tests.support.pxe.clients import Client
from tests.support.pxe.host import BootHost, boot_settings
from tests.support.pxe.netns import Netns
from tests.support.pxe.prober import Prober

_numbers = itertools.count(1)

SWITCH: Final = "10.77.0.1"
SWITCH6: Final = "fd77::1"
MANAGEMENT: Final = "10.78.0.1"


class Lab(Installation):
    """``with Lab(directory) as lab``: the networks and ``hosts`` boot hosts are there; nothing runs in them yet."""

    def __init__(self, directory: Path, *, hosts: int = 3) -> None:
        super().__init__(directory)
        self.hosts: list[BootHost] = []
        self._count = hosts
        self._clients = 0
        self._number = next(_numbers)
        self._forwards = itertools.count(1)

    def reach(self, *, url: str | None = None, api: str | None = None, broker: int = 0) -> str:
        """Join the networks to servers on 127.0.0.1; return the database's URL as the boot hosts see it.

        ``url``: of the database, SQLAlchemy's. ``api``: ``IP:PORT`` of the Bare Metal API, which is then found at
        port 6385 of ``SWITCH`` and ``SWITCH6`` by machines, and of ``MANAGEMENT`` by the hosts. ``broker``: the port
        of a RabbitMQ, the same at ``MANAGEMENT``.
        """
        pairs: list[str] = []
        seen = make_url(url) if url else None
        if seen is not None and seen.host:
            pairs += [f"{self.mgmt.name}@{MANAGEMENT}:{seen.port}", f"{seen.host}:{seen.port}"]
            seen = seen.set(host=MANAGEMENT)
        if api is not None:
            places = (f"{self.wire.name}@{SWITCH}", f"{self.wire.name}@[{SWITCH6}]", f"{self.mgmt.name}@{MANAGEMENT}")
            pairs += [end for place in places for end in (f"{place}:6385", api)]
        if broker:
            pairs += [f"{self.mgmt.name}@{MANAGEMENT}:{broker}", f"127.0.0.1:{broker}"]
        if pairs:
            self.forward(pairs)
        return seen.render_as_string(hide_password=False) if seen is not None else ""

    def forward(self, pairs: Sequence[str]) -> None:
        """Forward connections between the networks, as ``tests.support.cluster.forward`` is told."""
        name = f"forward-{next(self._forwards)}"
        self.play(name, [sys.executable, "-m", "tests.support.cluster.forward", *pairs], cwd=ROOT).wait_ready()

    def client(self, mac: str) -> Client:
        """Return a new client on the boot network with this MAC."""
        self._clients += 1
        space = self._namespace(f"c{self._clients}")
        port = f"c{self._clients}"
        netns.connect(space, "eth0", self.wire, port)
        space.ip("link", "set", "eth0", "address", mac)
        self.plug(port)
        return Client(space, self.directory, mac)

    def relayed_client(self, mac: str, host: BootHost) -> Client:
        """Return a new client in a network of its own (10.80.0.0/24), whose router relays DHCP to ``host``."""
        space = self._namespace("far")
        self.relay(host, space, "eth0")
        space.ip("link", "set", "eth0", "address", mac)
        return Client(space, self.directory, mac)

    def relay(self, host: BootHost, space: Netns, link: str) -> None:
        """Connect a link to a network of its own (10.80.0.0/24), whose router relays DHCP to ``host``."""
        router = self._namespace("relay")
        netns.connect(router, "near", self.wire, "relay")
        self.plug("relay")
        netns.connect(space, link, router, "far")
        router.ip("address", "add", "10.77.0.5/24", "dev", "near")
        router.ip("address", "add", "10.80.0.1/24", "dev", "far")
        router.sysctl("ipv4/ip_forward", "1")
        host.space.ip("route", "add", "10.80.0.0/24", "via", "10.77.0.5")
        words = ["dnsmasq", "--no-daemon", "--conf-file=/dev/null", "--port=0", "--user=root", "--pid-file="]
        relay = [*words, f"--dhcp-relay=10.80.0.1,{host.address}", "--interface=near", "--interface=far"]
        self.play("relay", [*router.prefix, *relay]).wait_ready("started")

    def prober(self, *, interval: float = 0.05) -> Prober:
        """Return a new prober on the boot network; it sends nothing until it is told whom to be."""
        space = self._namespace("prober")
        netns.connect(space, "eth0", self.wire, "prober")
        self.plug("prober")
        found = Prober(space.name, "eth0", self.directory / "prober.jsonl", interval=interval)
        self.after(found.close)
        return found

    def plug(self, port: str) -> None:
        """Connect a link of the switch's namespace to the switch."""
        self.wire.ip("link", "set", port, "master", "br0")

    def _start(self) -> None:
        netns.need_root()
        netns.sweep()
        self.after(host_clock.sweep)
        self.wire = self._namespace("wire")
        netns.bridge(self.wire, "br0")
        self.wire.ip("address", "add", f"{SWITCH}/24", "dev", "br0")
        self.wire.ip("address", "add", f"{SWITCH6}/64", "dev", "br0")
        self.mgmt = self._namespace("mgmt")
        netns.bridge(self.mgmt, "m0")
        self.mgmt.ip("address", "add", f"{MANAGEMENT}/24", "dev", "m0")
        for number in range(1, self._count + 1):
            self.hosts.append(self._host(number))
            self.hosts[-1].configure(boot_settings(self._count))

    def _host(self, number: int) -> BootHost:
        space = self._namespace(f"boot{number}")
        netns.connect(space, "boot", self.wire, f"boot{number}")
        self.plug(f"boot{number}")
        netns.connect(space, "mgmt", self.mgmt, f"boot{number}")
        host = BootHost(number, space, self.mgmt, self.directory)
        self.after(host.close)
        return host

    def _namespace(self, tag: str) -> Netns:
        made = Netns(f"{self._number}-{tag}")
        self.after(made.close)
        return made
