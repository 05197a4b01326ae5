"""Nodes that are one machine, and MAC addresses that several machines reported and that are not ignored yet.

No address is ignored automatically: a NIC may have been moved, and a machine may have reported the address of another
one by mistake or on purpose. So an operator decides. The advice never says to ignore the MAC addresses of nodes that
may be one machine: these are its real NICs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from ferroscope.api.http.context import ApiContext
from ferroscope.config.options import InspectorSettings
from ferroscope.contracts.store import Query, SharedMac
from ferroscope.db import Transaction
from ferroscope.hardware import search_index
from ferroscope.hardware.same_machine import Comparison, Sameness, compare, facts_of
from ferroscope_client.core.finding import Finding
from ferroscope_client.core.mac_addresses import IgnoredMacs
from ferroscope_client.core.values import many

_MAX_PROPOSED_MACS: Final = 64
# Seconds for which the result is kept, and for which it is kept if reading it takes long.
CACHE_SECONDS: Final = 20.0
_MAX_CACHE_SECONDS: Final = 600.0
_MAX_NAMED: Final = 4
_NODE_FIELDS: Final = frozenset({"uuid", "name", "internal", "driver_info", "hardware"})


class OneMachine(msgspec.Struct, frozen=True):
    """Two nodes that are one machine: their UUIDs, their names, and the facts that agree."""

    nodes: tuple[str, str]
    names: tuple[str, str]
    agreeing: tuple[str, ...]


class SharedHardware(msgspec.Struct, frozen=True):
    """What nodes have in common.

    ``of_different_machines``: MAC addresses that do not identify a machine. ``of_unknown_machines``: MAC addresses
    whose machines may or may not be different. ``names``: what to call the nodes, by UUID.
    """

    one_machine: Sequence[OneMachine]
    of_different_machines: Sequence[SharedMac]
    of_unknown_machines: Sequence[SharedMac]
    names: dict[str, str]


def find(context: ApiContext, tx: Transaction) -> SharedHardware:
    """Return the nodes that are one machine, and the MAC addresses of several that are not ignored."""
    ignored = context.settings.inspector.ignored
    return context.data.recent.get(
        "shared hardware", CACHE_SECONDS, lambda: _read(tx, ignored), max_seconds=_MAX_CACHE_SECONDS
    )


def _read(tx: Transaction, ignored: IgnoredMacs) -> SharedHardware:
    identities = tx.search_index.shared_identities()
    macs = [shared for shared in identities.macs if ignored.identifying(shared.address)]
    pairs = dict.fromkeys([*(shared.nodes for shared in macs), *identities.pairs_with_one_serial])
    names, compared = _compare(tx, list(pairs), ignored)
    by_sameness: dict[Sameness, list[SharedMac]] = defaultdict(list)
    for mac in macs:
        if mac.nodes in compared:
            by_sameness[compared[mac.nodes].sameness].append(mac)
    return SharedHardware(
        one_machine=[
            OneMachine((first, second), (names[first], names[second]), comparison.agreeing)
            for (first, second), comparison in compared.items()
            if comparison.sameness is Sameness.SAME
        ],
        of_different_machines=by_sameness[Sameness.DIFFERENT],
        of_unknown_machines=by_sameness[Sameness.UNKNOWN],
        names=names,
    )


def _compare(
    tx: Transaction, pairs: Sequence[tuple[str, str]], ignored: IgnoredMacs
) -> tuple[dict[str, str], dict[tuple[str, str], Comparison]]:
    """Return the names of these nodes, and each pair compared; a node that was just deleted is left out."""
    uuids = sorted({uuid for pair in pairs for uuid in pair})
    if not uuids:
        return {}, {}
    nodes = tx.nodes.list(Query(filters={"uuid": tuple(uuids)}, fields=_NODE_FIELDS))
    rows, addresses = tx.search_index.some(uuids, ("nic",)), tx.addresses.of_nodes(uuids)
    facts = {}
    for node in nodes:
        macs = (ignored.identifying(search_index.text(row, "mac")) for row in rows.get(node.uuid, ()))
        facts[node.uuid] = facts_of(node, [mac for mac in macs if mac], addresses.get(node.uuid, ()))
    names = {node.uuid: node.name or node.uuid for node in nodes}
    return names, {
        (first, second): compare(facts[first], facts[second])
        for first, second in pairs
        if first in facts and second in facts
    }


def line(settings: InspectorSettings, macs: Sequence[SharedMac]) -> str:
    """Return the line of the configuration that ignores these, too."""
    return f"ignored_macs = {','.join([*settings.ignored_macs, *(mac.address for mac in macs[:_MAX_PROPOSED_MACS])])}"


def findings(settings: InspectorSettings, shared: SharedHardware) -> list[Finding]:
    """Return the findings for the service's status."""
    problems = []
    if pairs := shared.one_machine:
        named = [f"nodes {' and '.join(pair.names)} are one machine: same {_list(pair.agreeing)}" for pair in pairs]
        uuids = dict.fromkeys(uuid for pair in pairs[:_MAX_NAMED] for uuid in pair.nodes)
        problems.append(
            Finding(
                "nodes-are-one-machine",
                "wrong",
                _some(named, "more pair of nodes", "more pairs of nodes"),
                "correct the BMC address of one and inspect it again, or delete it",
                f"uuid in ({', '.join(uuids)})",
            )
        )
    if macs := shared.of_different_machines:
        advice = (
            "if these are no NICs of their own, such as the USB NIC of a BMC, set in [inspector]: "
            f"{line(settings, macs)}; if a NIC was moved, inspect its former machine again"
        )
        problems.append(_macs_shared("several machines have", macs, shared.names, advice))
    if macs := shared.of_unknown_machines:
        advice = (
            "compare the BMC addresses and serial numbers of these nodes: if they are one machine, correct the BMC "
            "address of one or delete it; if a NIC was moved, inspect its former machine again"
        )
        problems.append(_macs_shared("several nodes, which may be one machine, have", macs, shared.names, advice))
    return problems


def _macs_shared(who: str, macs: Sequence[SharedMac], names: dict[str, str], advice: str) -> Finding:
    shown = _some(
        [f"{shared.address} (nodes {_nodes(shared, names)})" for shared in macs], "more address", "more addresses"
    )
    search = f"nic.mac in ({', '.join(shared.address for shared in macs[:_MAX_NAMED])})"
    return Finding("macs-shared", "note", f"{who} the same MAC address: {shown}", advice, search)


def _nodes(mac: SharedMac, names: dict[str, str]) -> str:
    first, second = (names[uuid] for uuid in mac.nodes)
    return f"{first}, {second} and others" if mac.nics > len(mac.nodes) else f"{first} and {second}"


def _some(texts: Sequence[str], singular: str, plural: str) -> str:
    rest = len(texts) - _MAX_NAMED
    return "; ".join([*texts[:_MAX_NAMED], *([f"and {many(rest, singular, plural)}"] if rest > 0 else [])])


def _list(facts: Iterable[str]) -> str:
    *first, last = facts
    return f"{', '.join(first)} and {last}" if first else last
