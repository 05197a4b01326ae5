"""The gates that stand in this host's nftables, of whatever network: looked at, and taken away when asked.

A gate that no process opens any more, such as that of a network which has another name now, is closed for good, and so
are its interfaces, whoever else opens a gate on them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from ferroscope.adapters.gate.command import Command
from ferroscope.adapters.gate.ruleset import PREFIX, GateRules


class Tables:
    """All calls raise ``GateError``."""

    def __init__(self, *, timeout: float) -> None:
        self._nft = Command("nft", package="nftables", timeout=timeout)

    def present(self) -> bool:
        """Whether this host has nft."""
        return self._nft.present()

    def names(self) -> list[str]:
        """Return the gates' tables."""
        listed = _objects(self._nft("-j", "list", "tables", "inet"), "table")
        return [table["name"] for table in listed if table["name"].startswith(PREFIX)]

    def guarded(self, table: str) -> frozenset[str]:
        """Return the interfaces on which this one lets nobody pass unless it is open."""
        rules = _objects(self._nft("-j", "-t", "list", "table", "inet", table), "rule")
        return frozenset(name for rule in rules if rule["chain"] == "input" for name in _interfaces(rule["expr"]))

    def outdated(self, rules: GateRules) -> bool:
        """Whether there is a table that an earlier release made for this network, under its former name.

        Another network may have that very name. So it counts only where it guards nothing but what ``rules`` do.
        """
        if rules.former_table == rules.table or rules.former_table not in self.names():
            return False
        guarded = self.guarded(rules.former_table)
        return bool(guarded) and guarded.issubset(rules.interfaces)

    def delete(self, table: str) -> None:
        """Take it away; whatever it guards is then open, unless another gate guards it too."""
        self._nft("delete", "table", "inet", table)


def _objects(text: str, kind: str) -> list[dict[str, Any]]:
    found = msgspec.json.decode(text) if text else {}
    return [item[kind] for item in found.get("nftables", ()) if kind in item]


def _interfaces(expressions: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the names that a rule compares the packet's interface with."""
    for expression in expressions:
        match = expression.get("match", {})
        if match.get("left") == {"meta": {"key": "iifname"}}:
            right = match["right"]
            yield from right["set"] if isinstance(right, dict) else [right]
