"""A node's BMC: a new password for it, and a trial.

*Passwords*: the new password is stored beside the present one, and a worker changes it on the BMC. No response contains
a password. All nodes that log in to the same BMC as the same user get the new password together, or none does. A node
of another owner is one of them only if it has the present password already. While a change is queued, the fields that
decide where passwords are sent cannot be changed.

*Trials*: a worker asks the BMC for the power state, so an operator who has corrected an address need not start an
inspection. The timeline shows the answer, and the node's last error shows why there was none. The state does not
change.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from ferroscope import transition
from ferroscope.api.auth import access
from ferroscope.api.baremetal import drivers
from ferroscope.api.baremetal.node_fields import shown_to
from ferroscope.api.errors import BadRequestError, StateConflictError, TooManyError
from ferroscope.api.http.context import ApiContext, ApiServices, ProcessContext
from ferroscope.api.http.decoding import node_ident
from ferroscope.api.http.json_patch import Operation
from ferroscope.api.http.route import NoQuery, Reply, RouteCall
from ferroscope.api.http.schemas import iso
from ferroscope.contracts.bmc import Bmc, ChangesPassword
from ferroscope.contracts.errors import SecretKeyError
from ferroscope.contracts.store import Query
from ferroscope.core import bmc_access, bmc_password
from ferroscope.core.delivery import TRIAL
from ferroscope.core.model import Node
from ferroscope.core.secrets import ENCRYPTED, for_validation, is_encrypted
from ferroscope.core.states import Event
from ferroscope.db import Transaction
from ferroscope.secrets.keys import DecryptionError
from ferroscope_client.core import passwords
from ferroscope_client.core.passwords import PasswordProgress, is_reference

POLICY = "baremetal:node:update:driver_info"
_REFERENCE = "ferroscope:secret:reference"
_PAGE_NODES = 500


class NewPassword(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``password``: the new password, or a reference to it; without it, an unclear change is resumed."""

    password: str | None = None

    def __repr__(self) -> str:
        return "NewPassword()"


class PasswordAccepted(msgspec.Struct, frozen=True):
    """``nodes``: the UUIDs of all nodes whose password changes, because they log in to the same BMC."""

    nodes: list[str]


class PasswordChange(msgspec.Struct, frozen=True):
    """The progress of the change.

    ``changed_at``: the end of the last change; ``error``: why the password did not change.
    """

    state: PasswordProgress
    changed_at: str | None = None
    error: str | None = None


def get_password_change(context: ApiContext, call: RouteCall[NoQuery, None]) -> Reply:
    """Show the progress of the change of the BMC's password."""
    ident = node_ident(call)

    def work(tx: Transaction) -> tuple[Node, bool]:
        node = tx.nodes.get(ident)
        return node, is_queued(tx, node)

    node, queued = context.data.store.read(work)
    state, record = bmc_password.change_of(node, queued=queued), bmc_password.record_of(node.internal)
    error = None
    if state in (PasswordProgress.UNCHANGED, PasswordProgress.UNCLEAR):
        error = shown_to(context.access.policy, call.identity, node, {"last_error": node.last_error})["last_error"]
    return Reply(200, PasswordChange(state, None if record is None else iso(record.at), error))


def set_password(context: ApiContext, call: RouteCall[NoQuery, NewPassword]) -> Reply:
    """Change the password of the BMC, and of all nodes that log in to it as the same user."""
    ident, password = node_ident(call), call.body.password
    if password is not None and not is_reference(password) and (why := passwords.problem(password)):
        raise BadRequestError(f"Invalid password: {why}.")

    def work(tx: Transaction) -> list[str]:
        asked_node = tx.nodes.get(ident)
        field = _field(context, asked_node)
        # Always in the same order: other calls may lock the same nodes.
        shared = sorted([asked_node.uuid, *(sharer.uuid for sharer in _sharing(context, call, tx, asked_node, field))])
        nodes = [tx.nodes.get(uuid, lock=True) for uuid in shared]
        for node in nodes:
            _check(context, call, tx, node, field, password)
        for number, node in enumerate(nodes):
            _submit(context.process, tx, node, field, password, probe=number > 0)
        return shared

    return Reply(202, PasswordAccepted(context.data.store.write(work)))


def _field(context: ApiContext, node: Node) -> str:
    """Return the field with the password; ``BadRequestError`` if the driver cannot change it."""
    field = _changeable(context.services, node)
    if field is None:
        raise BadRequestError(drivers.not_supported(node, "a change of the BMC's password"))
    if not node.driver_info.get(bmc_password.user_field(field)):
        raise BadRequestError(f"Node {node.uuid} has no {bmc_password.user_field(field)}: the node has no BMC account.")
    return field


def _changeable(services: ApiServices, node: Node) -> str | None:
    driver = services.drivers.get(node.driver)
    return bmc_password.field_of(driver.properties) if isinstance(driver, ChangesPassword) else None


def _sharing(context: ApiContext, call: RouteCall[Any, Any], tx: Transaction, node: Node, field: str) -> list[Node]:
    """Return the other nodes that log in to this node's BMC as the same user.

    A node of another owner counts only if it has the same password: a caller may enroll a node with any BMC and user.
    """
    bmc_addresses = sorted({*tx.addresses.bmc_of(node.uuid), *bmc_access.literal_addresses(node.driver_info)})
    # Addresses of this host are in no index: they are tunnels, which lead to different BMCs.
    others = tx.addresses.owners(bmc_addresses) if bmc_addresses else _list_nodes_of_driver(tx, node.driver)
    near = [
        candidate
        for candidate in others
        if candidate.uuid != node.uuid
        and _changeable(context.services, candidate) == field
        and bmc_password.same_account(node, candidate, field)
        and (bmc_addresses or not bmc_access.moved_fields(_place(node), _place(candidate)))
    ]
    for candidate in near:
        _count_guess(context, call, node, candidate)
    return [
        candidate
        for candidate in near
        if candidate.owner == node.owner or _password(tx, candidate, field) == _password(tx, node, field)
    ]


def _list_nodes_of_driver(tx: Transaction, driver: str) -> Iterator[Node]:
    """Yield all nodes of this driver, some hundred with each statement."""
    marker = None
    while page := tx.nodes.list(Query(filters={"driver": driver}, limit=_PAGE_NODES, marker=marker)):
        yield from page
        marker = page[-1].uuid


def _count_guess(context: ApiContext, call: RouteCall[Any, Any], node: Node, sharer: Node) -> None:
    """Count a guess: the answer reveals whether both nodes have the same password. ``TooManyError``."""
    if sharer.owner == node.owner or access.may(context.access.policy, POLICY, call.identity, access.target_of(sharer)):
        return
    wait = context.access.guesses.take((node.owner, sharer.uuid), context.process.clock.monotonic())
    if wait:
        raise TooManyError(
            "The password of this BMC was to be changed too often by projects that share it; try again later, or let "
            "a member of the whole service change it.",
            {"Retry-After": str(wait)},
        )


def _password(tx: Transaction, node: Node, field: str) -> Any:
    """Return the stored password or reference. A password encrypted with a missing key equals no other."""
    value = node.driver_info.get(field)
    if value is None or not is_encrypted(value):
        return value
    try:
        return tx.keys.decrypt(value[ENCRYPTED], node.uuid, ("driver_info", field))
    except (SecretKeyError, DecryptionError):
        return object()


def _place(node: Node) -> dict[str, Any]:
    return {name: value for name, value in node.driver_info.items() if name.endswith(("_address", "_port", "_node"))}


def _check(
    context: ApiContext, call: RouteCall[Any, Any], tx: Transaction, node: Node, field: str, password: str | None
) -> None:
    """Raise an error if this node's password cannot be changed now."""
    policy, target = context.access.policy, access.target_of(node)
    if not access.may(policy, POLICY, call.identity, target):
        raise StateConflictError(
            "Nodes of other projects use the same account of this BMC; its password can be changed by a member of the "
            "whole service only."
        )
    if is_queued(tx, node):
        raise _busy(node)
    pending = node.driver_info.get(bmc_password.pending_field(field))
    if password is None:
        if pending is None:
            raise StateConflictError(f"No change of the BMC's password can be resumed on node {node.uuid}.")
        return
    if pending is not None:
        raise StateConflictError(
            f"An earlier change of the BMC's password of node {node.uuid} is unclear; resume it first: "
            f"PUT /v1/nodes/{node.uuid}/bmc/password with {{}}."
        )
    if is_reference(password):
        access.require(policy, _REFERENCE, call.identity, target)
    elif is_reference(node.driver_info.get(field)):
        raise StateConflictError(
            f"{field} of node {node.uuid} refers to a secret that is stored elsewhere. Store the new password there, "
            "and set a reference to it."
        )
    _check_valid(context.services.drivers[node.driver], node, field, password)


def _check_valid(driver: Bmc, node: Node, field: str, password: str) -> None:
    info = node.driver_info | ({} if is_reference(password) else {field: password})
    problem = driver.validate(for_validation(msgspec.structs.replace(node, driver_info=info)))
    if problem is not None:
        raise BadRequestError(f"Node {node.uuid} cannot get this password: {problem}.")


def _submit(
    process: ProcessContext, tx: Transaction, node: Node, field: str, password: str | None, *, probe: bool
) -> None:
    """Store the new password, and queue the change; ``probe``: the BMC may have it by then."""
    if password is not None:
        info = node.driver_info | {bmc_password.pending_field(field): password}
        node = tx.nodes.update(msgspec.structs.replace(node, driver_info=info))
    payload = {"probe": True} if probe or password is None else {}
    transition.submit(tx, node, Event.SET_PASSWORD, process=process.name, payload=payload)


def is_queued(tx: Transaction, node: Node) -> bool:
    """Whether a change of the node's password is waiting or under way."""
    if not bmc_password.pending_fields(node.driver_info):
        return False
    return any(request.event is Event.SET_PASSWORD for request in tx.requests.pending(node.uuid))


def _busy(node: Node) -> StateConflictError:
    return StateConflictError(
        f"The password of the BMC of node {node.uuid} is being changed; wait until that has ended: "
        f"GET /v1/nodes/{node.uuid}/bmc/password."
    )


def check_unlocked(tx: Transaction, node: Node) -> None:
    """Raise ``StateConflictError`` while the BMC's password is being changed: the new one is stored with the node."""
    if is_queued(tx, node):
        raise _busy(node)


def keep_pending(before: Node, after: Node, operations: list[Operation]) -> None:
    """Keep a new password that is not proven yet, unless the caller removes it by name. It cannot be set here."""
    for name in bmc_password.pending_fields(before.driver_info):
        if name not in after.driver_info and not any(
            operation.path == f"/driver_info/{name}" for operation in operations
        ):
            after.driver_info = after.driver_info | {name: before.driver_info[name]}
    for name in bmc_password.pending_fields(after.driver_info):
        if after.driver_info[name] != before.driver_info.get(name):
            raise BadRequestError(f"driver_info/{name} is set by a change of the BMC's password only.")


def check_change(tx: Transaction, before: Node, after: Node) -> None:
    """Raise ``StateConflictError`` for a change of a field that a queued change of the password relies on."""
    if not bmc_password.pending_fields(before.driver_info):
        return
    if before.driver_info != after.driver_info or before.driver != after.driver:
        check_unlocked(tx, before)


TRIAL_POLICY = "baremetal:node:set_provision_state"


def try_bmc(context: ApiContext, call: RouteCall[NoQuery, None]) -> Reply:
    """Have a worker ask the BMC for the power state, unless a trial is already waiting."""
    ident = node_ident(call)

    def work(tx: Transaction) -> None:
        node = tx.nodes.get(ident, lock=True)
        if node.inbox:
            raise StateConflictError(f"Node {node.uuid} is in the inbox: approve it before its BMC is contacted.")
        if any(request.event is Event.VERIFY for request in tx.requests.pending(node.uuid)):
            return
        transition.submit(tx, node, Event.VERIFY, process=context.process.name, payload={TRIAL: True})

    context.data.store.write(work)
    return Reply(202, headers={"Location": f"{call.url}/v1/nodes/{call.path['node']}/timeline"})
