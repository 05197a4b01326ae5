"""The inbox: discovered nodes, and nodes with held inspection data, wait for an operator's approval or rejection.

A rejected node is deleted except for its machine's MAC address, so that it is not discovered again immediately. This is
Ferroscope's addition to the Bare Metal API; ``GET /v1/nodes?inbox=true`` lists the nodes.
"""

from __future__ import annotations

import contextlib
from typing import Annotated, Final

import msgspec

from ferroscope import transition
from ferroscope.api.baremetal import discovery, machine_lookup, node_bmc, node_input, node_places, node_policies
from ferroscope.api.baremetal.node_input import NodeCreate
from ferroscope.api.baremetal.nodes import check_references, check_unprotected
from ferroscope.api.errors import BadRequestError, MissingError, StateConflictError
from ferroscope.api.http import decoding
from ferroscope.api.http.context import ApiContext, ProcessContext
from ferroscope.api.http.decoding import node_ident
from ferroscope.api.http.route import NoQuery, Reply, RouteCall
from ferroscope.api.http.schemas import Mac, iso
from ferroscope.contracts.errors import NotFoundError
from ferroscope.contracts.store import Query
from ferroscope.core import bmc_access, lookup
from ferroscope.core.model import Document, Node, Port
from ferroscope.core.states import Event
from ferroscope.db import Transaction
from ferroscope.hardware import machine_identity
from ferroscope.hardware.search_index import learn
from ferroscope.shared_places import find_shared
from ferroscope_client.core import advice, mac_addresses
from ferroscope_client.core.reasons import Reason
from ferroscope_client.core.states import Provision
from ferroscope_client.core.values import limit_key

_APPROVED: Final = "approved"
_REJECTED: Final = "rejected"


def approve_data(context: ApiContext, tx: Transaction, node: Node, record: Document) -> Node:
    """Process the held data."""
    node = machine_lookup.lift_hold(tx, node)
    _note(context.process, tx, node, _APPROVED, "the held data was approved by an operator")
    transition.submit(tx, node, Event.CONTINUE, process=context.process.name, payload=dict(record.get("payload") or {}))
    return node


def reject_data(context: ApiContext, tx: Transaction, node: Node, record: Document) -> None:
    """Drop the held data and end the inspection."""
    node = machine_lookup.lift_hold(tx, node)
    _note(context.process, tx, node, _REJECTED, "the held data was rejected by an operator")
    for part in tx.data.of_node(node.uuid):
        if part.inspection == node.inspection:
            tx.data.drop(part)
    message = f"the data was rejected by an operator: {record.get('message')}"
    payload = {"reason": str(Reason.DATA_REJECTED), "message": message}
    transition.submit(tx, node, Event.FAIL, process=context.process.name, payload=payload)


def _note(process: ProcessContext, tx: Transaction, node: Node, step: str, message: str) -> None:
    tx.journal.append([transition.step(node, step, message, process=process.name)])


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


class RefusedCallerView(msgspec.Struct, frozen=True):
    """The last call of a machine that belongs to no node; ``summary`` is for people."""

    source: str
    macs: list[str]
    bmc_addresses: list[str]
    serial: str | None
    reason: str
    message: str
    called_at: str | None
    summary: str


class RefusedCallerList(msgspec.Struct, frozen=True):
    """GET /v1/refused_callers, newest first."""

    refused_callers: list[RefusedCallerView]


class InboxNode(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of POST /v1/inbox: a machine that a scan has found.

    ``inventory`` is what its BMC reports, in the format of the ramdisk's; only its summary is kept.
    """

    driver: Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
    driver_info: Document
    labels: Document = {}
    macs: Annotated[list[Mac], msgspec.Meta(max_length=lookup.MAX_MACS)] = []
    inventory: Document = {}


class InboxAnswer(msgspec.Struct, frozen=True):
    """The new node in the inbox."""

    uuid: str


def add(context: ApiContext, call: RouteCall[NoQuery, InboxNode]) -> Reply:
    """Add a machine to the inbox; 409 if a node already has its BMC or one of its MAC addresses."""
    body = call.body
    create_body = msgspec.convert(
        {"driver": body.driver, "driver_info": body.driver_info, "labels": body.labels}, NodeCreate
    )
    changes = node_input.changes(create_body, None, context.services.drivers)
    ignored = context.settings.inspector.ignored
    macs = [mac for mac in dict.fromkeys(decoding.mac("macs", mac) for mac in body.macs) if mac not in ignored]
    uuid = context.process.new_uuid()

    def work(tx: Transaction) -> None:
        node = Node(uuid=uuid, auto_discovered=True, inbox=True, created_at=tx.now, **changes)
        node.hardware = learn(body.inventory, {}).summary if body.inventory else {}
        node_policies.require_for_new(context.access.policy, call.identity, node, create_body)
        check_references(context, call, None, node)
        addresses = bmc_access.literal_addresses(node.driver_info)
        _check_new(tx, node, macs)
        bmc_access.confirm(node, by_operator=False)
        transition.add_node(tx, node)
        tx.ports.add([Port(uuid=context.process.new_uuid(), node=uuid, address=mac, created_at=tx.now) for mac in macs])
        if addresses:
            tx.addresses.set_bmc(uuid, addresses)
        message = "found by a scan; the node waits in the inbox"
        tx.journal.append([transition.step(node, "found", message, process=context.process.name)])

    context.data.store.write(work)
    return Reply(201, InboxAnswer(uuid), {"Location": f"{call.url}/v1/nodes/{uuid}"})


def _check_new(tx: Transaction, node: Node, macs: list[str]) -> None:
    """Raise if a node is at the place of the BMC, or has one of the MAC addresses."""
    shared = find_shared(tx, node, (), claims=True)
    taken = tx.ports.list(Query(filters={"address": tuple(macs)})) if macs else ()
    owners = [*([shared[1].uuid] if shared is not None else ()), *(port.node for port in taken)]
    if owners:
        raise StateConflictError(f"Node {owners[0]} has this BMC or one of these MAC addresses already.")


def approve(context: ApiContext, call: RouteCall[NoQuery, None]) -> Reply:
    """Approve a discovered node; from then on it is like an enrolled one. Held inspection data is processed.

    If the node's BMC was refused because it belongs to another machine, the approval accepts that machine.
    """
    ident = node_ident(call)

    def work(tx: Transaction) -> None:
        node = tx.nodes.get(ident, lock=True)
        if (held := machine_identity.hold_of(node)) is not None:
            node = approve_data(context, tx, node, held)
            if not node.auto_discovered:
                return
        if advice.reason_of(node.last_error) is Reason.BMC_OTHER_MACHINE and machine_identity.behind_bmc(node):
            _approve_machine(context, tx, node)
            return
        _check_discovered(node)
        if not node.inbox and not bmc_access.is_unconfirmed(node):
            return
        bmc_access.confirm(node, by_operator=True)
        node_places.refuse_shared(context, call, tx, node, tx.addresses.bmc_of(node.uuid))
        node = tx.nodes.update(msgspec.structs.replace(node, inbox=False))
        tx.journal.append([transition.step(node, "approved", "approved by an operator", process=context.process.name)])

    context.data.store.write(work)
    return Reply(204)


def _approve_machine(context: ApiContext, tx: Transaction, node: Node) -> None:
    """Forget the identity of the BMC's machine; the next call learns it again."""
    internal = {key: value for key, value in node.internal.items() if key != machine_identity.BEHIND_BMC}
    node = tx.nodes.update(msgspec.structs.replace(node, internal=internal))
    _note(context.process, tx, node, _APPROVED, "the other machine at the address of the BMC was approved")


def reject(context: ApiContext, call: RouteCall[NoQuery, None]) -> Reply:
    """Delete a discovered node that is still in enroll, and do not discover its machine again.

    If inspection data of the node is held, only the data is dropped, and the inspection fails.
    """
    ident = node_ident(call)

    def work(tx: Transaction) -> None:
        node = tx.nodes.get(ident, lock=True)
        if (held := machine_identity.hold_of(node)) is not None:
            reject_data(context, tx, node, held)
            return
        _check_discovered(node)
        if node.provision_state is not Provision.ENROLL:
            raise StateConflictError(f"Node {node.uuid} is {node.provision_state}, not enroll; delete it instead.")
        check_unprotected(node)
        _reject(tx, node)

    context.data.store.write(work)
    return Reply(204)


def reject_source(context: ApiContext, call: RouteCall[NoQuery, RejectSource]) -> Reply:
    """Reject all nodes in the inbox that were discovered from one source address."""
    source = limit_key(call.body.source)
    rejected: list[str] = []
    for ident in context.data.store.read(lambda tx: tx.discoveries.of_source(source)):

        def work(tx: Transaction, ident: str = ident) -> bool:
            node = tx.nodes.get(ident, lock=True)
            waits = node.inbox and node.provision_state is Provision.ENROLL and not node.attributes.get("protected")
            if waits:
                _reject(tx, node)
            return waits

        with contextlib.suppress(NotFoundError):  # rejected or deleted concurrently
            if context.data.store.write(work):
                rejected.append(ident)
    return Reply(200, Rejected(rejected))


def _reject(tx: Transaction, node: Node) -> None:
    """Delete the node, and store the MAC address by which its machine is recognized."""
    tx.rejections.add(node.uuid, discovery.banned_macs(tx, node), str(discovery.origin(node).get("source") or ""))
    tx.rejections.forget(tx.now - discovery.REJECTION_SECONDS)
    node_bmc.check_unlocked(tx, node)
    transition.remove_node(tx, node)


def list_rejections(context: ApiContext, _call: RouteCall[NoQuery, None]) -> Reply:
    """List the MAC addresses of rejected machines."""
    rejections = context.data.store.read(lambda tx: tx.rejections.list())
    views = [
        RejectionView(
            address=rejection.address,
            node=rejection.node,
            rejected_at=iso(rejection.rejected_at),
            source=rejection.source,
        )
        for rejection in rejections
    ]
    return Reply(200, RejectionList(rejections=views))


def list_refused_callers(context: ApiContext, _call: RouteCall[NoQuery, None]) -> Reply:
    """List the machines that called in the last week, belong to no node, and were refused."""
    callers = context.data.store.read(
        lambda tx: tx.refused_callers.list_unknown(tx.now - lookup.REFUSED_CALLER_SECONDS)
    )
    views = [
        RefusedCallerView(
            source=caller.source,
            macs=caller.macs,
            bmc_addresses=caller.bmc_addresses,
            serial=caller.serial,
            reason=caller.reason,
            message=caller.message,
            called_at=iso(caller.called_at),
            summary=lookup.describe_caller(caller),
        )
        for caller in callers
    ]
    return Reply(200, RefusedCallerList(views))


def readmit(context: ApiContext, call: RouteCall[NoQuery, None]) -> Reply:
    """Allow a rejected machine to be discovered again."""
    text = call.path["address"]
    address = mac_addresses.normalized_mac(text)
    if address is None:
        raise BadRequestError(f"Invalid MAC address {decoding.shown_value(text)}.")

    def work(tx: Transaction) -> None:
        match = next(iter(tx.rejections.find([address])), None)
        if match is None:
            raise MissingError(f"Rejection {address} could not be found.")
        for rejection in tx.rejections.list():
            if rejection.node == match.node:
                tx.rejections.remove(rejection.address)

    context.data.store.write(work)
    return Reply(204)


def _check_discovered(node: Node) -> None:
    if not node.auto_discovered:
        raise StateConflictError(
            f"Node {node.uuid} was enrolled, not discovered, and has no held inspection data. There is nothing to "
            "approve or reject."
        )
