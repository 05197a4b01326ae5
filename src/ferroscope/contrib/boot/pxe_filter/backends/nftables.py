"""The filter in nftables: each change is one transaction, and the kernel closes the filter by a time-out.

Opening adds an element with a time-out to the set ``open``; see ``base`` for why it cannot take effect too late.
Elements are 48-bit numbers, sent as JSON: 10,000 load in 40 ms.

Packets to a boot service on a boot interface go to the chain ``filter``, which drops them unless their interface is
in ``open``. Machines are identified by the client's MAC in a DHCPv4 message (``chaddr``, which relays keep),
otherwise by the source of the frame. Only this table is changed: after an ``accept`` here, the host's own firewall
still decides. Of HTTP only new connections are checked, so that a download continues after the filter closes, as over
TFTP. Sources: nft(8); RFC 2131 for chaddr and hlen.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgspec

from ferroscope.contracts.store import Clock
from ferroscope.contrib.boot.pxe_filter import PxeFilterError
from ferroscope.contrib.boot.pxe_filter.backends.base import (
    COMMAND_SECONDS,
    PREFIX,
    FilterRules,
    HostCommand,
    TimedOpening,
)
from ferroscope.core.boot_macs import SetChange
from ferroscope_client.core import json_safety

# Offsets in bits from the UDP header: hlen (10 bytes into the message), chaddr (28 bytes into it).
_CHADDR: Final = "@th,288,48"
_HLEN: Final = "@th,80,8"
# Offsets in a DHCPv6 message: its type, and a relay's link address, which names the machine's network (RFC 8415).
_RELAYED: Final = "udp dport 547 @th,64,8 12"
# Packets that are dropped regardless of the lists, by the comment of the rule.
INFINIBAND: Final = "infiniband"
RELAYS: Final = "relays"
# The source of an Ethernet frame.
_SOURCE: Final = "@ll,48,48"
# The first segment of a connection only.
_NEW: Final = "tcp flags & (fin | syn | rst | ack) == syn"


def ruleset(rules: FilterRules) -> str:
    """Return a closed, empty filter as input for ``nft -f``, in one transaction."""
    table = f"inet {rules.table}"
    return f"table {table}\ndelete table {table}\ntable {table} {{\n{_body(rules)}}}\n"


def _body(rules: FilterRules) -> str:
    unknown = "accept" if rules.unknown else "drop"
    count_relays = "" if rules.unknown else f'\t\t{_RELAYED} counter drop comment "{RELAYS}"\n'
    return (
        f"\tset allow {{ typeof {_CHADDR}; }}\n"
        f"\tset deny {{ typeof {_CHADDR}; }}\n"
        f"\tset asked {{ typeof {_CHADDR}; size 65535; flags dynamic; }}\n"
        "\tset open { type ifname; flags timeout; }\n"
        "\tset armed { type mark; flags timeout; }\n"
        "\tchain dhcp4 {\n"
        f'\t\t{_HLEN} != 6 counter drop comment "{INFINIBAND}"\n'
        # A rule of its own: a full set must not keep the next rule from accepting the packet.
        f"\t\t{_CHADDR} @allow add @asked {{ {_CHADDR} }}\n"
        f"\t\t{_CHADDR} @allow accept\n"
        f"\t\t{_CHADDR} @deny drop\n"
        f"\t\t{unknown}\n"
        "\t}\n"
        "\tchain filter {\n"
        "\t\tiifname != @open counter drop\n"
        "\t\tmeta nfproto ipv4 udp dport { 67, 4011 } goto dhcp4\n"
        f"{_relay_rules(rules.relayed)}"
        f"\t\t{_SOURCE} @allow accept\n"
        f"\t\t{_SOURCE} @deny drop\n"
        f"{count_relays}"
        f"\t\t{unknown}\n"
        "\t}\n"
        "\tchain input {\n"
        "\t\ttype filter hook input priority -10; policy accept;\n"
        f"{_services(rules)}"
        "\t}\n"
    )


def _services(rules: FilterRules) -> str:
    if not rules.interfaces:
        return ""
    names = _braces(f'"{name}"' for name in rules.interfaces)
    udp = f"\t\tiifname {names} udp dport {{ 67, 69, 547, 4011 }} jump filter\n"
    if not rules.http_ports:
        return udp
    return f"{udp}\t\tiifname {names} tcp dport {_braces(map(str, rules.http_ports))} {_NEW} jump filter\n"


def _relay_rules(networks: Iterable[str]) -> str:
    parsed = [ipaddress.ip_network(text, strict=False) for text in networks]
    lines = ""
    for family, version in (("ip", 4), ("ip6", 6)):
        ours = [str(net) for net in parsed if net.version == version]
        if ours:
            lines += f"\t\t{family} saddr {_braces(ours)} accept\n"
    for net in parsed:
        if (
            net.version == 6 and net.prefixlen
        ):  # the relay itself may use any address: of its other side, or a link-local one
            prefix = f"@th,80,{net.prefixlen} {int(net.network_address) >> 128 - net.prefixlen:#x}"
            lines += f"\t\t{_RELAYED} {prefix} accept\n"
    return lines


def _braces(words: Iterable[str]) -> str:
    return "{ " + ", ".join(words) + " }"


# The tables of PXE filters in this host's nftables, for any network.
#
# A table that no process opens any more, for example because its network was renamed, stays closed and blocks its
# interfaces, even if another PXE filter is open on them.


class Tables:
    """All methods raise ``PxeFilterError``."""

    def __init__(self, *, timeout: float = COMMAND_SECONDS) -> None:
        self._nft = HostCommand("nft", package="nftables", timeout=timeout)

    def present(self) -> bool:
        """Whether nft is installed."""
        return self._nft.present()

    def names(self) -> list[str]:
        """Return the names of the filters' tables."""
        tables = _objects(self._nft("-j", "list", "tables", "inet"), "table")
        return [table["name"] for table in tables if table["name"].startswith(PREFIX)]

    def guarded_interfaces(self, table: str) -> frozenset[str]:
        """Return the interfaces that the table blocks unless it is open."""
        rules = _objects(self._nft("-j", "-t", "list", "table", "inet", table), "rule")
        return frozenset(name for rule in rules if rule["chain"] == "input" for name in _interfaces(rule["expr"]))

    def dropped_packets(self, table: str) -> dict[str, int]:
        """Return how many packets the rules with a comment have dropped since the filter was installed."""
        rules = _objects(self._nft("-j", "-t", "list", "table", "inet", table), "rule")
        return {
            rule["comment"]: expression["counter"]["packets"]
            for rule in rules if "comment" in rule
            for expression in rule["expr"] if "counter" in expression
        }  # fmt: skip

    def take_requesters(self, table: str) -> frozenset[int]:
        """Return which machines that may boot have sent DHCP requests since the last call; only IPv4."""
        sets = _objects(self._nft("-j", "list", "set", "inet", table, "asked"), "set")
        macs = frozenset(mac for asked in sets for mac in asked.get("elem", ()))
        if macs:
            self._nft("flush", "set", "inet", table, "asked")
        return macs

    def has_former_table(self, rules: FilterRules) -> bool:
        """Whether this network has a table under the name of an earlier release.

        Another network may have that name now, so it counts only if it guards no interfaces but those in ``rules``.
        """
        if rules.former_table == rules.table or rules.former_table not in self.names():
            return False
        guarded_interfaces = self.guarded_interfaces(rules.former_table)
        return bool(guarded_interfaces) and guarded_interfaces.issubset(rules.interfaces)

    def delete(self, table: str) -> None:
        """Delete it. Its interfaces are then open, unless another filter guards them."""
        self._nft("delete", "table", "inet", table)


def _objects(text: str, kind: str) -> list[dict[str, Any]]:
    decoded = json_safety.decode_own(text) if text else {}
    return [item[kind] for item in decoded.get("nftables", ()) if kind in item]


def _interfaces(expressions: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the interface names that a rule matches."""
    for expression in expressions:
        match = expression.get("match", {})
        if match.get("left") == {"meta": {"key": "iifname"}}:
            right = match["right"]
            yield from right["set"] if isinstance(right, dict) else [right]


class NftablesFilter:
    """A ``FilterBackend``, and the ``Kernel`` of ``TimedOpening``."""

    name = "nftables"
    self_closing = True
    step = 0.001

    def __init__(self, rules: FilterRules, *, clock: Clock, timeout: float = COMMAND_SECONDS) -> None:
        self._rules = rules
        self._nft = HostCommand("nft", package="nftables", timeout=timeout)
        self._table = f"inet {rules.table}"
        self._tables = Tables(timeout=timeout)
        self._timed = TimedOpening(self, clock)

    def install(self) -> None:
        self._timed.doubt()
        self._load(*self._without_former(), ruleset(self._rules))
        self._timed.forget()

    def apply(self, change: SetChange, *, fresh: bool, progress: Callable[[], object] = lambda: None) -> None:
        commands: list[dict[str, Any]] = []
        if fresh:
            commands += [{"flush": {"set": self._set_of(name)}} for name in ("allow", "deny")]
        for verb, name, macs in (
            ("delete", "allow", change.no_longer_allow),
            ("delete", "deny", change.no_longer_deny),
            ("add", "allow", change.allow),
            ("add", "deny", change.deny),
        ):
            if macs:
                commands.append({verb: {"element": self._set_of(name) | {"elem": list(macs)}}})
        if commands:
            self._nft("-j", "-f", "-", stdin=msgspec.json.encode({"nftables": commands}))

    def hold(self, until: float) -> float:
        return self._timed.hold(until)

    def close(self) -> None:
        self._timed.doubt()
        try:
            self._load(f"flush set {self._table} open", f"flush set {self._table} armed")
        except PxeFilterError:
            self.install()  # the ruleset was flushed, so the services were open to all
        self._timed.forget()

    def remove(self) -> None:
        self._timed.doubt()
        self._load(*self._without_former(), f"table {self._table}", f"delete table {self._table}")
        self._timed.forget()

    def arm(self, ticket: int, timeout: float) -> None:
        self._load(f"add element {self._table} armed {{ {ticket} timeout {_milliseconds(timeout)} }}")

    def open(self, ticket: int, timeout: float) -> None:
        self._load(
            f"delete element {self._table} armed {{ {ticket} }}",
            f"flush set {self._table} open",
            self._let_pass(timeout),
        )

    def refresh(self, timeout: float) -> None:
        self._load(f"delete element {self._table} open {self._interfaces()}", self._let_pass(timeout))

    def _without_former(self) -> list[str]:
        """Return the command that deletes this network's table of an earlier release, which nothing opens."""
        former = self._rules.former_table
        return [f"delete table inet {former}"] if self._tables.has_former_table(self._rules) else []

    def _let_pass(self, timeout: float) -> str:
        return f"add element {self._table} open {self._interfaces(f' timeout {_milliseconds(timeout)}')}"

    def _interfaces(self, suffix: str = "") -> str:
        return "{ " + ", ".join(f'"{name}"{suffix}' for name in self._rules.interfaces) + " }"

    def _set_of(self, name: str) -> dict[str, Any]:
        return {"family": "inet", "table": self._rules.table, "name": name}

    def _load(self, *lines: str) -> None:
        """Run all lines in one transaction."""
        self._nft("-f", "-", stdin="\n".join(lines) + "\n")


def _milliseconds(seconds: float) -> str:
    return f"{round(seconds * 1000)}ms"
