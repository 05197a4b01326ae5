"""The verbs of a node: manage, provide, inspect, abort.

``PUT states/provision`` changes the state and queues the verb's request in one transaction. An illegal verb gets 409,
with the current state and the allowed verbs. Source: the Bare Metal API reference.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from ferroscope import node_boot, transition
from ferroscope.api.baremetal import drivers
from ferroscope.api.errors import BadRequestError, NotAcceptableError, StateConflictError
from ferroscope.api.http import schemas
from ferroscope.api.http.context import ApiContext
from ferroscope.api.http.decoding import node_ident, shown_value
from ferroscope.api.http.route import NoQuery, Reply, RouteCall
from ferroscope.core import ironic_nodes
from ferroscope.core.callback_secret import Delivery
from ferroscope.core.delivery import is_inspectable
from ferroscope.core.interfaces import NO_INSPECT
from ferroscope.core.model import Node
from ferroscope.core.secrets import for_validation
from ferroscope.core.states import Event
from ferroscope.db import Transaction
from ferroscope_client.core.states import ACTIVE, RESTING_VERBS, Provision, State


class ProvisionTarget(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The verb: manage, provide, inspect or abort."""

    target: schemas.Verb


Verb = Callable[[ApiContext, Transaction, Node], None]

_SINCE: Final = {"manage": 4, "provide": 4, "inspect": 6, "abort": 13}
_ABORT_WAIT_SINCE: Final = 41


def set_provision_state(context: ApiContext, call: RouteCall[NoQuery, ProvisionTarget]) -> Reply:
    """Request a provision state; the node's ``provision_state`` shows the progress."""
    target, ident = call.body.target, node_ident(call)
    if (attached := context.services.attached) is not None:
        if target in RESTING_VERBS:
            attached.check_change(f"The target {target}")
        if target == "inspect":
            attached.prepare(context, ident)
    verb = _VERBS.get(target)
    if verb is None:
        raise BadRequestError(
            f"Unsupported target {shown_value(target)}: it must be one of {', '.join(sorted(_VERBS))}."
        )
    if call.minor < _SINCE[target]:
        raise NotAcceptableError(f"The target {target} requires API version 1.{_SINCE[target]}.")

    def work(tx: Transaction) -> None:
        node = tx.nodes.get(ident, lock=True, ahead=tx.macs.ahead if target == "inspect" else None)
        if target == "abort" and node.state is State.WAITING and call.minor < _ABORT_WAIT_SINCE:
            raise NotAcceptableError(f"Aborting an inspection requires API version 1.{_ABORT_WAIT_SINCE}.")
        verb(context, tx, node)

    context.data.store.write(work)
    return Reply(202, headers={"Location": f"{call.url}/v1/nodes/{call.path['node']}/states"})


def allowed_verbs(node: Node) -> list[str]:
    """Return the verbs that are allowed in the node's state."""
    if node.inbox:
        return ["abort"] if node.state in ACTIVE else []
    # Those of a node of an attached Ironic are sent there.
    resting = {} if ironic_nodes.ATTACHED in node.internal else RESTING_VERBS
    verbs = [verb for verb, moves in resting.items() if node.provision_state in moves]
    if _may_inspect(node):
        verbs.append("inspect")
    if node.state in ACTIVE:
        verbs.append("abort")
    return sorted(verbs)


def _may_inspect(node: Node) -> bool:
    # Only the Introspection API restarts an inspection; Ironic has no such verb in "inspect wait".
    return node.state is not State.WAITING and not node.inbox and is_inspectable(node)


def _manage(context: ApiContext, tx: Transaction, node: Node) -> None:
    target = _resting_target(node, "manage")
    if target is Provision.VERIFYING:
        transition.submit(tx, node, Event.VERIFY, process=context.process.name)
        transition.rest(tx, node, target, target=str(Provision.MANAGEABLE))
    else:
        transition.rest(tx, node, target)


def _provide(_context: ApiContext, tx: Transaction, node: Node) -> None:
    target = _resting_target(node, "provide")
    if node.attributes.get("retired"):
        raise BadRequestError(f"The providing operation can't be performed on node {node.uuid} because it is retired.")
    transition.rest(tx, node, target)


def _resting_target(node: Node, verb: str) -> Provision:
    target = RESTING_VERBS[verb].get(node.provision_state)
    if target is None or node.inbox or node.state in ACTIVE:
        raise _refusal(node, verb)
    return target


def _inspect(context: ApiContext, tx: Transaction, node: Node) -> None:
    if not _may_inspect(node):
        raise _refusal(node, "inspect")
    if node.attributes.get("inspect_interface") == NO_INSPECT:
        raise BadRequestError(drivers.not_supported(node, "inspect"))
    start(context, tx, node)


def start(context: ApiContext, tx: Transaction, node: Node, *, manage_boot: bool = True) -> None:
    """Start an inspection, or restart it while it waits; one whose machine we boot gets a secret for its callback.

    ``BadRequestError`` if the node's driver_info is invalid; does not connect to the BMC. A driver that is not enabled
    in this process may be enabled in workers, which check it themselves.
    """
    delivery = None
    if manage_boot:
        driver = context.services.drivers.get(node.driver)
        problem = None
        if driver is not None and node.state is not State.STARTING:
            problem = driver.validate(for_validation(node))
        if problem is not None:
            raise BadRequestError(f"Node {node.uuid} cannot be inspected: {problem}.")
        delivery = node_boot.delivery(context.settings, node, driver)
        if delivery is Delivery.BOOT_SCRIPT and not node_boot.has_macs(tx, node):
            delivery = Delivery.NONE  # the script is found by a MAC address
    transition.start(
        tx,
        node,
        inspection=context.process.new_uuid(),
        process=context.process.name,
        manage_boot=manage_boot,
        secret=context.process.new_token() if delivery is not None else None,
        secret_delivery=delivery,
    )


def abort(context: ApiContext, tx: Transaction, node: Node) -> None:
    """Queue an abort; ``StateConflictError`` if no inspection is in progress.

    The state table also allows it in ``finished``, for an abort that was accepted before the inspection ended.
    """
    if node.state not in ACTIVE:
        raise _refusal(node, "abort")
    transition.submit(tx, node, Event.ABORT, process=context.process.name)


def _refusal(node: Node, verb: str) -> StateConflictError:
    if node.inbox:
        return StateConflictError(
            f"Node {node.uuid} is in the inbox: {verb} is not possible; approve it first: "
            f"POST /v1/nodes/{node.uuid}/approve."
        )
    if node.state not in ACTIVE and ironic_nodes.ATTACHED in node.internal and (reason := ironic_nodes.refusal(node)):
        return StateConflictError(f"{reason[:1].upper()}{reason[1:]}.")
    options = ", ".join(allowed_verbs(node)) or "nothing until it ends"
    return StateConflictError(
        f"Node {node.uuid} is {node.provision_state!s} (inspection: {node.state}): {verb} is not possible; "
        f"allowed now: {options}."
    )


_VERBS: Final[dict[str, Verb]] = {"manage": _manage, "provide": _provide, "inspect": _inspect, "abort": abort}
