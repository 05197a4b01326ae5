"""The addresses by which a machine's BMC may call itself: literal, and resolved to IP addresses.

Resolved by a worker at the start of an inspection, outside any lock: DNS may be slow.
"""

from __future__ import annotations

import structlog

from ferroscope.core.bmc_access import hosts, is_address, normalize
from ferroscope.core.model import Node
from ferroscope.remote import resolver
from ferroscope.remote.resolver import UnresolvedError

_log = structlog.get_logger(__name__)


def resolve(node: Node, *, seconds: float) -> frozenset[str]:
    """Return every address in the ``*_address`` keys of ``driver_info``, loopback ones left out.

    A name may have several, v4 and v6. One that does not resolve, or not within ``seconds``, is
    kept as it is and logged. A BMC that is reached through another one has none of the latter's.
    """
    found: set[str] = set()
    for key, host in hosts(node.driver_info):
        found.update(_addresses(node, key, host, seconds))
    return frozenset(found)


def _addresses(node: Node, key: str, host: str, seconds: float) -> set[str]:
    if is_address(host):
        address = normalize(host)
        return {address} if address else set()
    try:
        found = resolver.resolve(host, seconds)
    except UnresolvedError as exc:
        _log.warning("cannot resolve a BMC address", node=node.uuid, field=key, error=str(exc))
        return {host.lower()}
    resolved = {known for text in found if (known := normalize(text))}
    return resolved | {host.lower()} if resolved else set()
