"""MAC addresses that several machines reported, and are not ignored yet: what to add to ``[inspector] ignored_macs``.

Nothing is ignored by itself: a NIC may have been moved, and a machine may have reported the address of another one by
mistake or on purpose. So an operator decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ferroscope.api.http.context import ApiContext
from ferroscope.config.options import InspectorSettings
from ferroscope.contracts.data import SharedMac
from ferroscope.core.values import many
from ferroscope.db.transaction import Transaction
from ferroscope.telemetry.finding import Finding

_READ: Final = 64
# Seconds for which they are kept, and for which they are where reading them takes long.
KEPT: Final = 20.0
_LONGEST: Final = 600.0
_NAMED: Final = 4


def find(context: ApiContext, tx: Transaction) -> list[SharedMac]:
    """Return the addresses that several machines reported and that are not ignored, those of most NICs first."""
    found = context.data.recent.get("shared MACs", KEPT, lambda: tx.search_index.shared_macs(_READ), longest=_LONGEST)
    ignored = context.settings.inspector.ignored
    return [one for one in found if ignored.identifying(one.address) is not None]


def line(settings: InspectorSettings, found: Sequence[SharedMac]) -> str:
    """Return the line of the configuration that ignores these, too."""
    return f"ignored_macs = {','.join([*settings.ignored_macs, *(one.address for one in found)])}"


def finding(settings: InspectorSettings, found: Sequence[SharedMac]) -> Finding:
    """Return what the service's status says of them."""
    named = "; ".join(f"{one.address} (nodes {_nodes(one)})" for one in found[:_NAMED])
    more = f"; and {many(len(found) - _NAMED, 'more address', 'more addresses')}" if len(found) > _NAMED else ""
    return Finding(
        "macs-shared",
        "note",
        f"several machines have the same MAC address: {named}{more}",
        "if these are no NICs of their own, such as the USB NIC of a BMC, set in [inspector]: "
        f"{line(settings, found)}; if a NIC was moved, inspect its former machine again",
        f"nic.mac in ({', '.join(one.address for one in found[:_NAMED])})",
    )


def _nodes(one: SharedMac) -> str:
    return f"{one.nodes[0]}, {one.nodes[1]} and others" if one.nics > len(one.nodes) else " and ".join(one.nodes)
