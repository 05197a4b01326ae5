"""The gate in nftables: the kernel closes it when nobody holds it any more.

Opening is an element with a time-out in the set ``open``. The kernel counts it from the moment
when it takes the element, and between our decision and that moment anything may happen: this
process, or ``nft``, may be stopped for as long as somebody likes. So no element can be added
late: a refresh first deletes the element that it replaces, and the first opening one that was
added a moment before (``armed``); where that has expired, the whole transaction fails. The latest
moment is thus known, and the time-out is what is left of the trusted time from *then* on.
"""

from __future__ import annotations

import json
import random
from typing import Any, Final

from ferroscope.adapters.gate.command import Command
from ferroscope.adapters.gate.ruleset import GateRules, ruleset
from ferroscope.domain.macsets import SetChange
from ferroscope.ports.clock import Clock
from ferroscope.ports.gate import GateError

# In seconds: how long an opening may be on its way; the longest and the shortest time-out.
_ARMED: Final = 1.0
_LONGEST: Final = 3.0
_SHORTEST: Final = 0.2


class NftablesGate:
    """See ``ports.gate.GateBackend``."""

    name = "nftables"
    self_closing = True

    def __init__(self, rules: GateRules, *, clock: Clock, timeout: float) -> None:
        self._rules = rules
        self._clock = clock
        self._nft = Command("nft", package="nftables", timeout=timeout)
        self._table = f"inet {rules.table}"
        self._open_until = 0.0
        self._refreshable = False

    def install(self) -> None:
        self._forget()
        self._nft("-f", "-", stdin=ruleset(self._rules))

    def apply(self, change: SetChange, *, fresh: bool) -> None:
        """One transaction; elements are added only where they are missing, removed where they are there."""
        commands: list[dict[str, Any]] = []
        if fresh:
            commands += [{"flush": {"set": self._named(name)}} for name in ("allow", "deny")]
        for verb, name, macs in (
            ("delete", "allow", change.no_longer_allow),
            ("delete", "deny", change.no_longer_deny),
            ("add", "allow", change.allow),
            ("add", "deny", change.deny),
        ):
            if macs:
                commands.append({verb: {"element": self._named(name) | {"elem": list(macs)}}})
        if commands:
            self._nft("-j", "-f", "-", stdin=json.dumps({"nftables": commands}, separators=(",", ":")))

    def hold(self, until: float) -> float:
        if self._refreshable and self._clock.monotonic() < self._open_until:
            try:
                return self._refresh(until)
            except GateError:  # the element has expired meanwhile, or is gone with the table
                self._refreshable = False
        return self._open(until)

    def close(self) -> None:
        self._refreshable = False
        try:
            self._nft("-f", "-", stdin=f"flush set {self._table} open\nflush set {self._table} armed\n")
        except GateError:
            self.install()  # somebody flushed the whole ruleset, and the service is open to all
        self._forget()

    def remove(self) -> None:
        self._forget()
        self._nft("-f", "-", stdin=f"table {self._table}\ndelete table {self._table}\n")

    def _refresh(self, until: float) -> float:
        """Replace an element that is alive; at the latest, that happens when it would have expired."""
        timeout = min(_LONGEST, until - self._open_until)
        if timeout < _SHORTEST:
            return self._open_until
        return self._let_pass(f"delete element {self._table} open {self._names()}", timeout)

    def _open(self, until: float) -> float:
        """Open from nothing; at the latest, that happens when the element ``armed`` expires."""
        if until - self._clock.monotonic() < _ARMED + _SHORTEST:
            return self._open_until
        ticket = random.getrandbits(32)  # only different from earlier ones
        self._nft("-f", "-", stdin=f"add element {self._table} armed {{ {ticket} timeout {_ARMED:g}s }}\n")
        timeout = min(_LONGEST, until - (self._clock.monotonic() + _ARMED))
        if timeout < _SHORTEST:
            return self._open_until
        condition = f"delete element {self._table} armed {{ {ticket} }}\nflush set {self._table} open"
        return self._let_pass(condition, timeout)

    def _let_pass(self, condition: str, timeout: float) -> float:
        """Add the elements under ``condition``; both happen, or neither."""
        before, milliseconds = self._open_until, int(timeout * 1000)
        # Should the answer be lost, it may be open nevertheless, for as long as the latest moment allows.
        self._open_until = max(before, self._clock.monotonic() + _ARMED) + timeout
        add = f"add element {self._table} open {self._names(f' timeout {milliseconds}ms')}"
        self._nft("-f", "-", stdin=f"{condition}\n{add}\n")
        self._open_until = self._clock.monotonic() + timeout
        self._refreshable = True
        return self._open_until

    def _named(self, name: str) -> dict[str, Any]:
        return {"family": "inet", "table": self._rules.table, "name": name}

    def _names(self, suffix: str = "") -> str:
        return "{ " + ", ".join(f'"{name}"{suffix}' for name in self._rules.interfaces) + " }"

    def _forget(self) -> None:
        self._open_until = 0.0
        self._refreshable = False
