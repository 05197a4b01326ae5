"""The chains of one network in iptables, for both families: put in place, looked at, and taken away.

The jumps to them stand in INPUT, one for each interface and kind of service. Which of those are ours is seen by where
they lead; so those of interfaces that are not configured any more are found as well. A change is one
``iptables-restore`` for each family, all of it or nothing. A look takes four short processes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from ferroscope.adapters.gate.command import Command
from ferroscope.adapters.gate.ruleset import GateRules
from ferroscope.contracts.pxe_filter import GateError

FAMILIES: Final = ("iptables", "ip6tables")
UDP: Final = "67,69,547,4011"
# Of all programs on a host one at a time may change legacy tables; the others fail unless they are told to wait.
WAIT: Final = "--wait"


class Chains:
    """``gate`` and ``macs`` are their names: at most 28 characters, and no other network's."""

    def __init__(self, rules: GateRules, *, timeout: float) -> None:
        self.gate = f"fspxe-{rules.network}"
        self.macs = f"fspxm-{rules.network}"
        # The name that earlier releases gave to ``macs``: it may also be the gate of a network with such a name.
        self._former_macs = f"{self.gate}-m"
        self._rules = rules
        self._tools = {name: Command(name, package="iptables", timeout=timeout) for name in FAMILIES}
        self.restores = {name: Command(f"{name}-restore", package="iptables", timeout=timeout) for name in FAMILIES}

    def missing(self) -> list[str]:
        """Return the programs that are not installed."""
        return [tool.program for tool in (*self._tools.values(), *self.restores.values()) if not tool.present()]

    def put(self, lines: list[str]) -> None:
        """Carry out lines as iptables-save writes them."""
        for name in FAMILIES:
            self.restores[name](WAIT, "--noflush", stdin=table(lines))

    def install(self, lines: list[str]) -> None:
        """Carry them out, and have exactly the jumps that belong there, before all other rules of INPUT."""
        wanted = [f"-I INPUT {jump}" for jump in self._jumps()]
        for name in FAMILIES:
            old = [f"-D INPUT {jump}" for jump in self.jumps(name)]
            self.restores[name](WAIT, "--noflush", stdin=table([*lines, *old, *wanted]))

    def look(self, rules: int) -> None:
        """Raise ``GateError`` where a jump is gone, or the gate's chain has not so many rules."""
        wanted = len(list(self._jumps()))
        for name in FAMILIES:
            if len(set(self.jumps(name))) < wanted:
                raise GateError(
                    f"the gate's rules in {name} are gone: somebody flushed or replaced the host's firewall"
                )
            shown = self._tools[name](WAIT, "-S", self.gate)
            if sum(line.startswith("-A ") for line in shown.splitlines()) != rules:
                raise GateError(f"the gate's chain in {name} is not as it was: somebody changed {self.gate}")

    def jumps(self, family: str) -> list[str]:
        """Return the jumps to the gate that are there, in the words of iptables."""
        return _to(self.gate, self._tools[family](WAIT, "-S", "INPUT"))

    def remove(self) -> None:
        """Take away chains and jumps, and look whether they are gone; both families, whatever fails in one."""
        failed: list[str] = []
        for name in FAMILIES:
            try:
                self._remove(name)
            except GateError as exc:
                failed.append(str(exc))
        if failed:
            raise GateError("; ".join(failed))

    def _remove(self, family: str) -> None:
        there, shown = self._there(family)
        if there:
            emptied = [f":{chain} - [0:0]" for chain in there]
            jumps = [f"-D INPUT {jump}" for jump in _to(self.gate, shown)]
            self.restores[family](
                WAIT, "--noflush", stdin=table([*emptied, *jumps, *(f"-X {chain}" for chain in there)])
            )
        left, _ = self._there(family)
        if left:
            raise GateError(f"{', '.join(left)} could not be removed from {family}; see: {family} -S")

    def _there(self, family: str) -> tuple[list[str], str]:
        """Return our chains that exist, and all rules of the table."""
        shown = self._tools[family](WAIT, "-S")
        ours = [self.gate, self.macs]
        if not _to(self._former_macs, shown):
            ours.append(self._former_macs)
        return [chain for chain in ours if f"-N {chain}" in shown.splitlines()], shown

    def _jumps(self) -> Iterator[str]:
        """Of HTTP only new connections are judged, so that a download outlives the closing."""
        for interface in self._rules.interfaces:
            yield f"-i {interface} -p udp -m multiport --dports {UDP} -j {self.gate}"
            if self._rules.http_ports:
                ports = ",".join(map(str, self._rules.http_ports))
                yield f"-i {interface} -p tcp --syn -m multiport --dports {ports} -j {self.gate}"


def _to(chain: str, shown: str) -> list[str]:
    """Return the rules of INPUT that lead to the chain, without the words ``-A INPUT``."""
    lines = (line.removeprefix("-A INPUT ") for line in shown.splitlines() if line.startswith("-A INPUT "))
    return [line for line in lines if line.endswith(f" -j {chain}")]


def table(lines: Iterable[str]) -> str:
    """Return lines as iptables-restore reads them: chains are declared first, and thereby emptied."""
    declared_first = sorted(lines, key=lambda line: not line.startswith(":"))
    return "\n".join(["*filter", *declared_first, "COMMIT", ""])
