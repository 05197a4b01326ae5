"""The gate in iptables, for hosts without nft: chains of its own, changed by one iptables-restore for all MACs.

With ipset, the kernel ends an opening by itself, as with nftables; between the two messages of such
a step, though, ``ipset`` could be stopped. Without it a watchdog closes. MACs are rules, looked at
one after the other, and matched by the frame's source: machines behind a DHCP relay need nftables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import structlog

from ferroscope.adapters.gate.chains import FAMILIES, UDP, WAIT, Chains, table
from ferroscope.adapters.gate.command import Command
from ferroscope.adapters.gate.ruleset import GateRules
from ferroscope.adapters.gate.timed import TimedOpening
from ferroscope.adapters.gate.watched import Watchdog
from ferroscope.contracts.pxe_filter import GateError
from ferroscope.contracts.queue import Clock
from ferroscope.core.boot_macs import SetChange, spelled

_log = structlog.get_logger(__name__)

# Seconds between two looks at a gate that is held open: somebody may have flushed the host's firewall, and us with it.
_LOOK_EVERY: Final = 0.5


class IptablesGate:
    """See ``contracts.pxe_filter.GateBackend``; ``timed.Kernel`` where the kernel has ipset."""

    name = "iptables"
    step = 1.0

    def __init__(self, rules: GateRules, *, clock: Clock, timeout: float) -> None:
        self._rules = rules
        self._clock = clock
        self._chains = Chains(rules, timeout=timeout)
        self._ipset = Command("ipset", package="ipset", timeout=timeout)
        self._timed = TimedOpening(self, clock)
        closing = table(self._gate(("-j", "DROP")))
        self._watchdog = Watchdog(
            commands=[((self._chains.restores[name].path, WAIT, "--noflush"), closing) for name in FAMILIES]
            if not self._chains.missing()
            else ()
        )
        self._open = False
        self._looked_at = 0.0
        self.self_closing = self._has_timeouts()

    def install(self) -> None:
        self._timed.doubt()
        if self.self_closing:
            for name in ("open", "armed"):
                self._ipset("-exist", "create", self._set(name), "bitmap:port", "range", "0-65535", "timeout", "1")
            self._flush()
        self._chains.install(self._closed() + self._mac_chain())
        self._open = False
        self._timed.forget()

    def apply(self, change: SetChange, *, fresh: bool, progress: Callable[[], object] = lambda: None) -> None:
        if fresh:
            self._chains.put(self._mac_chain(change.allow, change.deny))
            return
        lines = [f"-D {rule}" for rule in self._each(change.no_longer_allow, "RETURN")]
        lines += [f"-D {rule}" for rule in self._each(change.no_longer_deny, "DROP")]
        lines += [f"-I {rule}" for rule in self._each(change.allow, "RETURN")]
        lines += [f"-I {rule}" for rule in self._each(change.deny, "DROP")]
        if lines:
            self._chains.put(lines)

    def hold(self, until: float) -> float:
        if self.self_closing:
            until = self._timed.hold(until)
        else:
            if self._watchdog.hold(until):
                self._open = False
            if not self._open:
                self._chains.put(self._gate(("-j", self._chains.macs)))
                self._open = True
        if self._clock.monotonic() - self._looked_at >= _LOOK_EVERY:
            self._look()
        return until

    def close(self) -> None:
        self._timed.doubt()
        try:
            if self.self_closing:
                self._flush()
            else:
                self._chains.put(self._gate(("-j", "DROP")))
            self._look()
        except GateError:
            self.install()
        if not self.self_closing:
            self._watchdog.release()
        self._open = False
        self._timed.forget()

    def remove(self) -> None:
        self._watchdog.end()
        self._chains.remove()
        if self._ipset.present():
            ours = {self._set(name) for name in ("open", "armed")}
            for name in ours.intersection(self._ipset("list", "-n").split()):
                self._ipset("destroy", name)

    def _look(self) -> None:
        """Raise ``GateError`` where the gate is not in place."""
        self._chains.look(len(self._closed_rules()))
        self._looked_at = self._clock.monotonic()

    # The steps of ``timed.Kernel``. A set's elements are ports, so that all boot services open together.

    def arm(self, ticket: int, timeout: float) -> None:
        self._ipset("-exist", "add", self._set("armed"), str(ticket), "timeout", f"{timeout:.0f}")

    def open(self, ticket: int, timeout: float) -> None:
        self._ipset("restore", stdin=f"del {self._set('armed')} {ticket}\n{self._additions(timeout)}")

    def refresh(self, timeout: float) -> None:
        self._ipset("restore", stdin=f"del {self._set('open')} 67\n{self._additions(timeout)}")

    def _additions(self, timeout: float) -> str:
        ports = [*UDP.split(","), *map(str, self._rules.http_ports)]
        return "".join(f"add {self._set('open')} {port} timeout {timeout:.0f} -exist\n" for port in ports)

    def _has_timeouts(self) -> bool:
        """Whether the kernel has sets of ports with time-outs, and the tool for it is there."""
        probe = self._set("probe")
        try:
            self._ipset("-exist", "create", probe, "bitmap:port", "range", "0-1", "timeout", "1")
            self._ipset("destroy", probe)
        except GateError as exc:
            _log.warning("no ipset here: a watchdog process closes the gate instead of the kernel", why=str(exc))
            return False
        return True

    def _flush(self) -> None:
        for name in ("open", "armed"):
            self._ipset("flush", self._set(name))

    def _closed(self) -> list[str]:
        return self._gate(*self._closed_rules())

    def _closed_rules(self) -> tuple[tuple[str, ...], ...]:
        if not self.self_closing:
            return (("-j", "DROP"),)
        unless = ("-m", "set", "!", "--match-set", self._set("open"), "dst", "-j", "DROP")
        return unless, ("-j", self._chains.macs)

    def _gate(self, *rules: Iterable[str]) -> list[str]:
        """Return the gate's chain, with nothing but these rules."""
        chain = self._chains.gate
        return [f":{chain} - [0:0]", *(f"-A {chain} {' '.join(rule)}" for rule in rules)]

    def _mac_chain(self, allow: Iterable[int] = (), deny: Iterable[int] = ()) -> list[str]:
        last = [] if self._rules.unknown else [f"-A {self._chains.macs} -j DROP"]
        rules = [f"-A {rule}" for rule in (*self._each(allow, "RETURN"), *self._each(deny, "DROP"))]
        return [f":{self._chains.macs} - [0:0]", *rules, *last]

    def _each(self, macs: Iterable[int], verdict: str) -> Iterator[str]:
        """RETURN leaves the word to the host's own rules."""
        for mac in macs:
            yield f"{self._chains.macs} -m mac --mac-source {spelled(mac)} -j {verdict}"

    def _set(self, name: str) -> str:
        return f"{self._chains.gate}-{name}"
