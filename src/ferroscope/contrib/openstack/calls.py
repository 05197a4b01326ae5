"""Calls of the API about nodes of an attached Ironic: data that our copy lacks is read from there."""

from __future__ import annotations

import threading
from typing import Final

from ferroscope.api.errors import BadRequestError, UnavailableError, belongs_to_ironic
from ferroscope.api.http.context import ApiContext
from ferroscope.contracts.errors import ConflictError, NotFoundError
from ferroscope.contracts.remote import IronicClient, IronicLockedError, IronicRefusedError, IronicUnavailableError
from ferroscope.contrib.openstack import copies
from ferroscope.core.delivery import is_inspectable
from ferroscope.core.lookup import Evidence
from ferroscope.core.model import Node
from ferroscope.db import Transaction
from ferroscope_client.core.states import ACTIVE

_AGAIN: Final = {"Retry-After": "5"}
# Machines are not authenticated. So the number of their calls that query Ironic at the same time is limited, and the
# number of MACs in each.
_SEARCHES: Final = threading.BoundedSemaphore(2)
_MAX_SEARCHED_MACS: Final = 4
# The most requests that wait at the same time for a silent Ironic, and the seconds that the others wait.
_VALIDATIONS: Final = threading.BoundedSemaphore(4)
_VALIDATION_PATIENCE_SECONDS: Final = 2.0


class IronicCalls:
    """See ``api.http.context.AttachedCalls``."""

    def __init__(self, ironic: IronicClient) -> None:
        self._ironic = ironic

    def check_change(self, endpoint: str) -> None:
        raise belongs_to_ironic(endpoint, self._ironic.url)

    def prepare(self, context: ApiContext, ident: str, *, manage_boot: bool = True) -> None:
        """Read the node again if our copy is missing, or says that it cannot be inspected.

        If this service boots the machine, Ironic validates the node's power interface. ``UnavailableError`` if the node
        is unknown here and Ironic does not answer; ``BadRequestError`` if its power interface is not valid.
        """
        try:
            stored: Node | None = context.data.store.read(lambda tx: tx.nodes.get(ident), snapshot=False)
        except NotFoundError:
            stored = None
        if stored is not None and stored.state in ACTIVE:
            return
        if stored is None or not is_inspectable(stored):
            try:
                _copy(self._ironic, context, ident)
            except IronicUnavailableError as exc:
                context.process.log.warning("cannot read a node from Ironic", node=ident, error=str(exc))
                if stored is None:
                    message = f"Node {ident} is unknown here, and Ironic does not answer."
                    raise UnavailableError(message, _AGAIN) from exc
        if manage_boot:
            _validate_power(self._ironic, context, ident)

    def search(self, context: ApiContext, evidence: Evidence) -> bool:
        """Return whether a node of Ironic has one of these MACs, and our copy has been corrected."""
        if not evidence.macs or not _SEARCHES.acquire(blocking=False):
            return False
        try:
            for mac in evidence.macs[:_MAX_SEARCHED_MACS]:
                port = self._ironic.port_with(mac)
                if port is not None:
                    return _copy(self._ironic, context, str(port.get("node_uuid")))
        except IronicUnavailableError as exc:
            context.process.log.warning(
                "cannot look up a machine in Ironic", macs=list(evidence.macs[:_MAX_SEARCHED_MACS]), error=str(exc)
            )
        finally:
            _SEARCHES.release()
        return False


def _validate_power(ironic: IronicClient, context: ApiContext, ident: str) -> None:
    """Raise ``BadRequestError`` if Ironic says that it cannot control the machine's power.

    If it does not answer, the inspection is accepted: its worker waits for Ironic, and finds out.
    """
    if not _VALIDATIONS.acquire(timeout=_VALIDATION_PATIENCE_SECONDS):
        return
    try:
        problem = ironic.power_problem(ident)
    except (IronicUnavailableError, IronicLockedError, IronicRefusedError) as exc:
        context.process.log.warning("cannot have Ironic validate the power interface", node=ident, error=str(exc))
        return
    finally:
        _VALIDATIONS.release()
    if problem is not None:
        raise BadRequestError(
            f"Failed validation of power interface of node {ident}: {problem}. Correct the node in Ironic."
        )


def _copy(ironic: IronicClient, context: ApiContext, ident: str) -> bool:
    if (document := ironic.node(ident)) is None:
        return False
    ports = ironic.ports_of(str(document["uuid"]))

    def save(tx: Transaction) -> Node:
        return copies.save(tx, document, ports)

    try:
        context.data.store.write(save)
    except ConflictError:  # another call, or the periodic task, has just added the same node
        context.data.store.write(save)
    return True
