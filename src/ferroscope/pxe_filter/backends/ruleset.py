"""The filter as an nftables table: closed and empty, to be loaded as it is when the host starts.

Whatever comes in on a boot interface for a boot service goes to the chain ``pxe_filter``; first of all
it needs its interface in the set ``open``, whose elements have time-outs. Machines are told apart
by the client's own MAC in a DHCPv4 message (``chaddr``: it is the same behind a relay), else by
the frame's source. Only this table is ever touched: an ``accept`` here still leaves the word to
the host's own firewall. Of HTTP only new connections are judged, so that a download outlives the
closing, as one over TFTP does. Sources: nft(8); RFC 2131 for chaddr and hlen.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import Final

import msgspec

PREFIX: Final = "ferroscope_pxe_"

# Offsets in bits from the UDP header: hlen (10 bytes into the message), chaddr (28 bytes into it).
_CHADDR: Final = "@th,288,48"
_HLEN: Final = "@th,80,8"
# The source of an Ethernet frame.
_SOURCE: Final = "@ll,48,48"
# The first segment of a connection, and no other one.
_NEW: Final = "tcp flags & (fin | syn | rst | ack) == syn"


class FilterRules(msgspec.Struct, frozen=True, kw_only=True):
    """What the filter of one network guards on this host.

    ``relayed`` are networks behind routers: their TFTP and HTTP requests carry the router's MAC,
    so they pass while the filter is open.
    """

    network: str
    interfaces: tuple[str, ...]
    http_ports: tuple[int, ...] = ()
    relayed: tuple[str, ...] = ()
    unknown: bool = True

    @property
    def table(self) -> str:
        """The table's name: that of the network as it is, for nft takes letters, digits and ``_.-``."""
        return PREFIX + self.network

    @property
    def former_table(self) -> str:
        """The name that earlier releases gave it, and to that of any network whose name differs in ``_.-`` only."""
        return PREFIX + "".join(char if char.isalnum() else "_" for char in self.network)


def ruleset(rules: FilterRules) -> str:
    """Return the text for ``nft -f``: one transaction that puts a closed, empty filter in place."""
    table = f"inet {rules.table}"
    return f"table {table}\ndelete table {table}\ntable {table} {{\n{_body(rules)}}}\n"


def _body(rules: FilterRules) -> str:
    unknown = "accept" if rules.unknown else "drop"
    return (
        f"\tset allow {{ typeof {_CHADDR}; }}\n"
        f"\tset deny {{ typeof {_CHADDR}; }}\n"
        "\tset open { type ifname; flags timeout; }\n"
        "\tset armed { type mark; flags timeout; }\n"
        "\tchain dhcp4 {\n"
        f"\t\t{_HLEN} != 6 drop\n"
        f"\t\t{_CHADDR} @allow accept\n"
        f"\t\t{_CHADDR} @deny drop\n"
        f"\t\t{unknown}\n"
        "\t}\n"
        "\tchain filter {\n"
        "\t\tiifname != @open counter drop\n"
        "\t\tmeta nfproto ipv4 udp dport { 67, 4011 } goto dhcp4\n"
        f"{_relayed(rules.relayed)}"
        f"\t\t{_SOURCE} @allow accept\n"
        f"\t\t{_SOURCE} @deny drop\n"
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
    names = _braced(f'"{name}"' for name in rules.interfaces)
    udp = f"\t\tiifname {names} udp dport {{ 67, 69, 547, 4011 }} jump filter\n"
    if not rules.http_ports:
        return udp
    return f"{udp}\t\tiifname {names} tcp dport {_braced(map(str, rules.http_ports))} {_NEW} jump filter\n"


def _relayed(networks: Iterable[str]) -> str:
    parsed = [ipaddress.ip_network(text, strict=False) for text in networks]
    lines = ""
    for family, version in (("ip", 4), ("ip6", 6)):
        ours = [str(net) for net in parsed if net.version == version]
        if ours:
            lines += f"\t\t{family} saddr {_braced(ours)} accept\n"
    return lines


def _braced(words: Iterable[str]) -> str:
    return "{ " + ", ".join(words) + " }"
