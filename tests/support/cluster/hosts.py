"""Hosts on one network, a network namespace each; two of them are load balancers, configured as in deploy/.

The addresses are those of the examples: .8 and .9 for the load balancers, .10 floats between them.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
from pathlib import Path
from typing import Final

from tests.support.cluster.balancer import SHIPPED, program
from tests.support.installation import Installation
from tests.support.processes import until
from tests.support.pxe import netns
from tests.support.pxe.netns import Netns
from tests.support.web_servers import DEPLOY, changed

FLOATING_IP: Final = "192.0.2.10"
BALANCERS: Final = ("192.0.2.8", "192.0.2.9")


class LoadBalancer(Installation):
    """HAProxy and keepalived on one host; ``number`` 0 or 1."""

    def __init__(self, directory: Path, number: int, space: Netns, config: Path) -> None:
        super().__init__(directory)
        self.number, self.space, self._config = number, space, config

    def _start(self) -> None:
        directory = self.directory
        directory.mkdir()
        own, other = BALANCERS if self.number == 0 else reversed(BALANCERS)
        config = directory / "keepalived.conf"
        config.write_text(
            changed(
                DEPLOY / "keepalived/keepalived.conf",
                {
                    "unicast_src_ip 192.0.2.8\n    unicast_peer {\n        192.0.2.9": (
                        f"unicast_src_ip {own}\n    unicast_peer {{\n        {other}"
                    ),
                    # The checkout may be in a directory of a user, which others may not enter.
                    "/etc/keepalived/check-haproxy": str(DEPLOY / "keepalived/check-haproxy"),
                    "    enable_script_security\n": "",
                    "user nobody": "user root",
                },
            )
        )
        keepalived = shutil.which("keepalived", path="/usr/sbin")
        if keepalived is None:
            raise RuntimeError("the tests need the Debian package keepalived; run: tools/setup.sh balancers")
        pids = [word for option in "prc" for word in (f"-{option}", str(directory / f"{option}.pid"))]
        words = ["--dont-fork", "--log-console", "--vrrp", "--use-file", str(config), *pids]
        self.haproxy = self.play("haproxy", [*self.space.prefix, program(), "-db", "-f", str(self._config)])
        self.keepalived = self.play("keepalived", [*self.space.prefix, keepalived, *words])

    @property
    def is_active(self) -> bool:
        return f" {FLOATING_IP}/" in self.space.ip("address", "show", "dev", "eth0")

    @property
    def state(self) -> str:
        """The state that keepalived has logged last."""
        states: list[str] = re.findall(r"Entering (\w+) STATE", self.keepalived.output())
        return states[-1] if states else ""

    def kill_haproxy(self) -> None:
        os.killpg(self.haproxy.pid, signal.SIGKILL)

    def kill_keepalived(self) -> None:
        os.killpg(self.keepalived.pid, signal.SIGKILL)

    def repair(self) -> None:
        """Let everything work again on this host."""
        self.haproxy.thaw()
        self.space.ip("link", "set", "eth0", "up")
        for played in (self.haproxy, self.keepalived):
            if not played.alive or not played.children():
                played.end()
                played.start()


class Network(Installation):
    """One network; subclasses add hosts in ``_start``. Needs root."""

    def _start(self) -> None:
        netns.need_root()
        netns.sweep()
        self._switch = self._space("switch")
        netns.bridge(self._switch, "br0")
        self.balancers: list[LoadBalancer] = []

    def host(self, tag: str, address: str) -> Netns:
        """Add a host with this address."""
        space = self._space(tag)
        netns.connect(space, "eth0", self._switch, tag)
        self._switch.ip("link", "set", tag, "master", "br0")
        space.ip("address", "add", f"{address}/24", "dev", "eth0")
        return space

    def balance(self, config: Path = SHIPPED) -> None:
        """Add the two load balancers; ``config`` is that of HAProxy."""
        for number, address in enumerate(BALANCERS):
            space = self.host(f"lb{number}", address)
            balancer = LoadBalancer(self.directory / f"host-{number}", number, space, config)
            self.balancers.append(self._ending.enter_context(balancer))

    def active(self) -> LoadBalancer:
        """Wait until one load balancer has the address and the other one is ready to take it; return the first."""
        assert until(lambda: sum(host.is_active for host in self.balancers) == 1)
        assert until(lambda: {host.state for host in self.balancers} == {"MASTER", "BACKUP"})
        return next(host for host in self.balancers if host.is_active)

    def _space(self, tag: str) -> Netns:
        space = Netns(tag)
        self.after(space.close)
        return space
