"""The inbox: discovered nodes, and nodes with held inspection data, wait for an operator's approval or rejection.

A rejected node is deleted except for its machine's MAC address, so that it is not discovered again immediately. This is
Ferroscope's addition to the Bare Metal API; ``GET /v1/nodes?inbox=true`` lists the nodes.
"""

from __future__ import annotations

import contextlib
from typing import Annotated

import msgspec

from ferroscope import transition
from ferroscope.api.baremetal import discovery, holds
from ferroscope.api.baremetal.nodes import check_unprotected
from ferroscope.api.http import decoding, rate_limit
from ferroscope.api.http.decoding import node_ident
from ferroscope.api.http.errors import BadRequestError, MissingError, StateConflictError
from ferroscope.api.http.route import ApiContext, Call, NoQuery, Reply
from ferroscope.api.http.schemas import Mac, iso
from ferroscope.contracts.errors import NotFoundError
from ferroscope.contracts.store import Transaction
from ferroscope.core import bmc_access, hold, values
from ferroscope.core.model import Node
from ferroscope.core.states import Provision


class RejectionView(msgspec.Struct, frozen=True):
    """A MAC address whose machine is not discovered again; ``node`` is the UUID of its former node."""

    address: Mac
    node: str
    rejected_at: str | None
    source: str | None


class RejectSource(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of POST /v1/rejections: the source address of the machines; an IPv6 address means its /64."""

    source: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]


class Rejected(msgspec.Struct, frozen=True):
    """The UUIDs of the rejected nodes."""

    nodes: list[str]


class RejectionList(msgspec.Struct, frozen=True):
    """GET /v1/rejections, newest first."""

    rejections: list[RejectionView]


def approve(context: ApiContext, call: Call[NoQuery, None]) -> Reply:
    """Approve a discovered node; from then on it is like an enrolled one. Held inspection data is processed."""
    ident = node_ident(call)

    def work(tx: Transaction) -> None:
        node = tx.nodes.get(ident, lock=True)
        if (held := hold.of(node)) is not None:
            node = holds.approve(context, tx, node, held)
            if not node.auto_discovered:
                return
        _check_discovered(node)
        if not node.inbox and not bmc_access.unconfirmed(node):
            return
        bmc_access.confirm(node, by_operator=True)
        node = tx.nodes.update(msgspec.structs.replace(node, inbox=False))
        tx.journal.append([transition.step(node, "approved", "approved by an operator", process=context.process)])

    context.store.write(work)
    return Reply(204)


def reject(context: ApiContext, call: Call[NoQuery, None]) -> Reply:
    """Delete a discovered node that is still in enroll, and do not discover its machine again.

    If inspection data of the node is held, only the data is dropped, and the inspection fails.
    """
    ident = node_ident(call)

    def work(tx: Transaction) -> None:
        node = tx.nodes.get(ident, lock=True)
        if (held := hold.of(node)) is not None:
            holds.reject(context, tx, node, held)
            return
        _check_discovered(node)
        if node.provision_state is not Provision.ENROLL:
            raise StateConflictError(f"Node {node.uuid} is {node.provision_state}, not enroll; delete it instead.")
        check_unprotected(node)
        _reject(context, tx, node)

    context.store.write(work)
    return Reply(204)


def reject_source(context: ApiContext, call: Call[NoQuery, RejectSource]) -> Reply:
    """Reject all nodes in the inbox that were discovered from one source address."""
    source = rate_limit.group(call.body.source)
    rejected: list[str] = []
    for ident in context.store.read(lambda tx: tx.discoveries.of_source(source)):

        def work(tx: Transaction, ident: str = ident) -> bool:
            node = tx.nodes.get(ident, lock=True)
            waits = node.inbox and node.provision_state is Provision.ENROLL and not node.attributes.get("protected")
            if waits:
                _reject(context, tx, node)
            return waits

        with contextlib.suppress(NotFoundError):  # rejected or deleted concurrently
            if context.store.write(work):
                rejected.append(ident)
    return Reply(200, Rejected(rejected))


def _reject(context: ApiContext, tx: Transaction, node: Node) -> None:
    """Delete the node, and store the MAC address by which its machine is recognized."""
    remember = context.settings.auto_discovery.remember_rejected
    tx.rejections.add(node.uuid, discovery.banned(tx, node), str(discovery.origin(node).get("source") or ""))
    if remember:
        tx.rejections.forget(tx.now - remember)
    transition.remove_node(tx, node)


def list_rejections(context: ApiContext, _call: Call[NoQuery, None]) -> Reply:
    """List the MAC addresses of rejected machines."""
    found = context.store.read(lambda tx: tx.rejections.list())
    views = [
        RejectionView(address=one.address, node=one.node, rejected_at=iso(one.rejected_at), source=one.source)
        for one in found
    ]
    return Reply(200, RejectionList(rejections=views))


def readmit(context: ApiContext, call: Call[NoQuery, None]) -> Reply:
    """Allow a rejected machine to be discovered again."""
    text = call.path["address"]
    address = values.normalize(text)
    if address is None:
        raise BadRequestError(f"Invalid MAC address {decoding.shown(text)}.")

    def work(tx: Transaction) -> None:
        given = next(iter(tx.rejections.find([address])), None)
        if given is None:
            raise MissingError(f"Rejection {address} could not be found.")
        for one in tx.rejections.list():
            if one.node == given.node:
                tx.rejections.remove(one.address)

    context.store.write(work)
    return Reply(204)


def _check_discovered(node: Node) -> None:
    if not node.auto_discovered:
        raise StateConflictError(
            f"Node {node.uuid} was enrolled, not discovered, and no inspection data of it is held; there is nothing to "
            "approve or reject."
        )
