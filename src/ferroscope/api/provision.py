"""PUT states/provision: manage, provide, inspect, abort.

Each verb changes the state and queues its request in one transaction. Source: the Bare Metal API
reference; what is illegal now is 409, with the present state and what is allowed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from ferroscope import transition
from ferroscope.api import documented
from ferroscope.api.call import Call, NoQuery, Reply
from ferroscope.api.context import ApiContext
from ferroscope.api.errors import BadRequestError, NotAcceptableError, StateConflictError
from ferroscope.api.idents import node_ident
from ferroscope.api.scalars import shown
from ferroscope.contracts.store import Transaction
from ferroscope.core.delivery import is_inspectable
from ferroscope.core.model import Node
from ferroscope.core.states import ACTIVE, RESTING_VERBS, Event, Provision, State


class ProvisionTarget(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The verb; this service knows manage, provide, inspect and abort."""

    target: documented.Verb


Verb = Callable[[ApiContext, Transaction, Node], None]

_SINCE: Final = {"manage": 4, "provide": 4, "inspect": 6, "abort": 13}
_ABORT_WAIT_SINCE: Final = 41


def set_provision_state(context: ApiContext, call: Call[NoQuery, ProvisionTarget]) -> Reply:
    """Ask for a provision state; follow the node's ``provision_state`` to see it come."""
    target = call.body.target
    verb = _VERBS.get(target)
    if verb is None:
        raise BadRequestError(f"The target {shown(target)} is not known here; known: {', '.join(sorted(_VERBS))}.")
    if call.minor < _SINCE[target]:
        raise NotAcceptableError(f"The target {target} needs API version 1.{_SINCE[target]}.")
    ident = node_ident(call)

    def work(tx: Transaction) -> None:
        node = tx.nodes.get(ident, lock=True)
        if target == "abort" and node.state is State.WAITING and call.minor < _ABORT_WAIT_SINCE:
            raise NotAcceptableError(f"Aborting an inspection needs API version 1.{_ABORT_WAIT_SINCE}.")
        verb(context, tx, node)

    context.store.write(work)
    return Reply(202, headers={"Location": f"{call.url}/v1/nodes/{call.node}/states"})


def allowed_verbs(node: Node) -> list[str]:
    """Return the verbs that the node's state takes."""
    if node.inbox:
        return ["abort"] if node.state in ACTIVE else []
    verbs = [verb for verb, moves in RESTING_VERBS.items() if node.provision_state in moves]
    if is_inspectable(node):
        verbs.append("inspect")
    if node.state in ACTIVE:
        verbs.append("abort")
    return sorted(verbs)


def _manage(context: ApiContext, tx: Transaction, node: Node) -> None:
    target = _resting_target(node, "manage")
    if target is Provision.VERIFYING:
        transition.submit(tx, node, Event.VERIFY, process=context.process)
        transition.rest(tx, node, target, target=str(Provision.MANAGEABLE))
    else:
        transition.rest(tx, node, target)


def _provide(_context: ApiContext, tx: Transaction, node: Node) -> None:
    transition.rest(tx, node, _resting_target(node, "provide"))


def _resting_target(node: Node, verb: str) -> Provision:
    target = RESTING_VERBS[verb].get(node.provision_state)
    if target is None or node.inbox or node.state in ACTIVE:
        raise _refusal(node, verb)
    return target


def _inspect(context: ApiContext, tx: Transaction, node: Node) -> None:
    if "inspect" not in allowed_verbs(node):
        raise _refusal(node, "inspect")
    check_power(context, node)
    transition.start(tx, node, inspection=context.new_uuid(), process=context.process)


def check_power(context: ApiContext, node: Node) -> None:
    """Raise ``BadRequestError`` where the driver could not switch the power; no BMC is asked.

    A driver that is not enabled in this process is the workers' matter.
    """
    driver = context.drivers.get(node.driver)
    problem = driver.validate(node) if driver is not None and node.state is not State.STARTING else None
    if problem is not None:
        raise BadRequestError(f"Node {node.uuid} cannot be inspected: {problem}.")


def abort(context: ApiContext, tx: Transaction, node: Node) -> None:
    """Queue an abort; ``StateConflictError`` where no inspection is under way.

    The table takes one in ``finished`` too: of an abort that was accepted before the inspection had ended.
    """
    if node.state not in ACTIVE:
        raise _refusal(node, "abort")
    transition.submit(tx, node, Event.ABORT, process=context.process)


def _refusal(node: Node, verb: str) -> StateConflictError:
    if node.inbox:
        return StateConflictError(
            f"Node {node.uuid} cannot {verb} while it waits in the inbox; approve it first: "
            f"POST /v1/nodes/{node.uuid}/approve."
        )
    options = ", ".join(allowed_verbs(node)) or "nothing until this is over"
    return StateConflictError(
        f"Node {node.uuid} cannot {verb} while it is {node.provision_state!s} "
        f"(inspection: {node.state}); allowed now: {options}."
    )


_VERBS: Final[dict[str, Verb]] = {"manage": _manage, "provide": _provide, "inspect": _inspect, "abort": abort}
