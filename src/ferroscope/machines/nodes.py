"""The nodes as the controller of Machines uses them: it reads the store, and changes by calls of the API's routes.

Each call passes the same validation and leaves the same audit event as one over HTTP. While ``led_by`` lasts, every
write depends on the lease, so a former leader changes nothing. ``ApiError`` is what a caller over HTTP would get.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final

import msgspec

from ferroscope.api.auth import identity
from ferroscope.api.http.in_process import Caller, perform
from ferroscope.api.http.route import ApiContext, Route
from ferroscope.api.routes import ROUTES
from ferroscope.contracts.coordination import PRECONDITION
from ferroscope.contracts.errors import NotFoundError
from ferroscope.contracts.store import Query, Transaction
from ferroscope.core import bmc_access
from ferroscope.core.model import Lease, Node
from ferroscope.core.states import State
from ferroscope.machines.mapping import same_bmc, time_text

_PAGE: Final = 200
_RECENT: Final = 20
# Seconds by which a transaction may be committed later than its time says.
_LATE: Final = 10.0


class Seen(msgspec.Struct, frozen=True):
    """A node with the MACs of its ports; ``reason`` is the code of its last failure, "" if it has none."""

    node: Node
    macs: list[str]
    reason: str = ""


class Nodes:
    """``cluster`` is named in the audit log, with the Machine on whose behalf a call is made."""

    def __init__(self, context: ApiContext, cluster: str) -> None:
        self._context = context
        self._cluster = cluster
        self._versions: dict[str, int] = {}
        self._since = 0.0

    @contextmanager
    def led_by(self, lease: Lease) -> Iterator[None]:
        """Have all that is written in this block depend on the lease; ``StaleLeaseError``."""
        asked = PRECONDITION.set(lease)
        try:
            yield
        finally:
            PRECONDITION.reset(asked)

    def now(self) -> str:
        """Return the time of this host, in the format of Kubernetes."""
        return time_text(self._context.clock.time()) or ""

    @property
    def drivers(self) -> frozenset[str]:
        return frozenset(self._context.drivers)

    def prefix(self, driver: str) -> str:
        """Return what the driver's keys of address and credentials begin with, such as ``redfish``."""
        names = [name for name in self._context.drivers[driver].properties if name.endswith("_address")]
        return min(names, key=len).removesuffix("_address") if names else driver

    # Reading.

    def get(self, uuid: str) -> Seen | None:
        """Return the node; None if it does not exist."""

        def read(tx: Transaction) -> Seen:
            node = tx.nodes.get(uuid)
            macs = [port.address for port in tx.ports.list(Query(filters={"node": uuid}))]
            reason = ""
            if node.state is State.ERROR and node.inspection is not None:
                reason = tx.inspections.get(node.inspection).reason or ""
            return Seen(node, macs, reason)

        try:
            return self._context.store.read(read)
        except NotFoundError:
            return None

    def every(self) -> Iterator[Node]:
        """Yield all nodes, page by page; ``NotFoundError`` if the last one of a page is deleted meanwhile."""
        marker = None
        while True:
            query = Query(limit=_PAGE, marker=marker)
            page = self._context.store.read(lambda tx, query=query: tx.nodes.list(query))  # type: ignore[misc]
            yield from page
            if len(page) < _PAGE:
                return
            marker = page[-1].uuid

    def forget(self) -> None:
        """Forget which versions of nodes were seen: all nodes are about to be looked at."""
        self._versions.clear()

    def changed(self) -> list[str]:
        """Return the UUIDs of the nodes that have changed since the last call; at first, of recent ones.

        ``NotFoundError`` as ``every``.
        """
        found, marker, newest = [], None, self._since
        while True:
            query = Query(limit=_RECENT, marker=marker, sort_key="updated_at", descending=True)
            page = self._context.store.read(lambda tx, query=query: tx.nodes.list(query))  # type: ignore[misc]
            recent = [one for one in page if (one.updated_at or 0.0) > self._since - _LATE]
            for one in recent:
                newest = max(newest, one.updated_at or 0.0)
                if self._versions.get(one.uuid) != one.version:
                    self._versions[one.uuid] = one.version
                    found.append(one.uuid)
            if len(recent) < _RECENT or not self._since:
                break
            marker = page[-1].uuid
        self._since = newest
        return found

    def clash(self, uuid: str, driver_info: Mapping[str, Any], macs: Sequence[str]) -> str:
        """Return which other node has one of these MACs or this BMC, "" if none has."""

        def read(tx: Transaction) -> str:
            for mac in macs:
                for port in tx.ports.list(Query(filters={"address": mac})):
                    if port.node != uuid:
                        return f"MAC address {mac} is in use by node {_label(tx.nodes.get(port.node))}"
            addresses = sorted(bmc_access.literal(dict(driver_info)))
            for other in tx.addresses.owners(addresses) if addresses else ():
                if other.uuid != uuid and same_bmc(other.driver_info, driver_info):
                    return f"the BMC {', '.join(addresses)} is that of node {_label(other)}"
            return ""

        return self._context.store.read(read)

    def newest_inspection(self, uuid: str) -> str:
        """Return the UUID of the newest inspection, "" if there is none."""
        found = self._context.store.read(lambda tx: tx.nodes.get(uuid), snapshot=False).inspection
        return found or ""

    def inventory(self, uuid: str) -> tuple[Any, Any]:
        """Return the inventory and the other data of the last inspection."""
        found = self._call("GET /v1/nodes/{node}/inventory", "", {"node": uuid})
        return found["inventory"], found["plugin_data"]

    # Changes, each on behalf of a Machine.

    def create(self, who: str, body: Mapping[str, Any]) -> None:
        self._call("POST /v1/nodes", who, body=dict(body))

    def change(self, who: str, uuid: str, operations: Sequence[Mapping[str, Any]]) -> None:
        self._call("PATCH /v1/nodes/{node}", who, {"node": uuid}, body=list(operations))

    def add_mac(self, who: str, uuid: str, mac: str) -> None:
        self._call("POST /v1/ports", who, body={"node_uuid": uuid, "address": mac})

    def remove_mac(self, who: str, mac: str) -> None:
        """Delete the port with this address."""
        for port in self._context.store.read(lambda tx: tx.ports.list(Query(filters={"address": mac}))):
            self._call("DELETE /v1/ports/{port}", who, {"port": port.uuid})

    def inspect(self, who: str, uuid: str) -> None:
        self._call("PUT /v1/nodes/{node}/states/provision", who, {"node": uuid}, body={"target": "inspect"})

    def delete(self, who: str, uuid: str) -> None:
        self._call("DELETE /v1/nodes/{node}", who, {"node": uuid})

    def _call(self, endpoint: str, who: str, path: Mapping[str, str] | None = None, body: Any = None) -> Any:
        user = f"{self._cluster}/{who}" if who else self._cluster
        caller = Caller(identity=identity.local(user, "kubernetes", ("admin",)))
        reply = perform(self._context, _routes()[endpoint], caller, path=path or {}, query={}, body=body)
        if isinstance(reply.body, bytes):
            return msgspec.json.decode(reply.body)
        return msgspec.to_builtins(reply.body)


def _label(node: Node) -> str:
    return f"{node.name} ({node.uuid})" if node.name else node.uuid


@lru_cache(maxsize=1)
def _routes() -> dict[str, Route]:
    return {f"{route.method} {route.path}": route for route in ROUTES}
