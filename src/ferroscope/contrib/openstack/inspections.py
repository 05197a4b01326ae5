"""Inspections of an attached Ironic's nodes: reads the node at the start, records changes, writes them at the end.

Hooks and rules work on our copy. Their changes are recorded as the payload of the request to ``finish``, in the
transaction that ends the processing. That request writes them to Ironic and only then ends the inspection. If its
worker dies, the next one reads the node from Ironic and writes the missing changes, so the node ends the same.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

from ferroscope.contracts.bmc import Power
from ferroscope.contracts.errors import BmcError
from ferroscope.contracts.remote import IronicClient
from ferroscope.contracts.store import Later
from ferroscope.contrib.openstack import copies
from ferroscope.contrib.openstack.client import as_bmc_errors
from ferroscope.core import ironic_nodes
from ferroscope.core.delivery import Fail, Next, Outcome
from ferroscope.core.model import Document, Request
from ferroscope.db import Transaction
from ferroscope.worker.attempt import Attempt
from ferroscope.worker.services import ReadsAhead, StoredData
from ferroscope.worker.tasks import InspectionTasks
from ferroscope_client.core.reasons import Reason
from ferroscope_client.core.states import State

T = TypeVar("T")

_CHANGES: Final = "registry"
_GONE: Final = Fail(Reason.NOT_TRACKED, "Ironic no longer has this node")


def wrap_tasks(ironic: IronicClient, own: InspectionTasks) -> InspectionTasks:
    """Return the tasks of an inspection that reads the node from Ironic at its start, and writes it at its end."""

    def start(attempt: Attempt) -> Outcome:
        return begin(ironic, attempt) or own.start(attempt)

    def finish(attempt: Attempt) -> Outcome:
        return apply(ironic, attempt) or own.finish(attempt)

    return InspectionTasks(start, RecordingTask(own.process), finish)


class RecordingTask(ReadsAhead):
    """Processes an inspection, and records what has changed for ``apply``."""

    def __init__(self, process: ReadsAhead) -> None:
        self._process = process

    def __call__(self, attempt: Attempt) -> Outcome:
        outcome = self._process(attempt)
        if not isinstance(outcome, Next):
            return outcome
        return Next(outcome.event, record_changes(attempt) | outcome.payload)

    def ahead(self, tx: Transaction, request: Request) -> Later[StoredData]:
        return self._process.ahead(tx, request)


def begin(ironic: IronicClient, attempt: Attempt) -> Fail | None:
    """Go on with the node and the ports as Ironic has them now; return why it must not be inspected, if so."""
    with as_bmc_errors():
        document = ironic.node(attempt.node.uuid)
        ports = () if document is None else ironic.ports_of(attempt.node.uuid)
    if document is None:
        return _GONE
    if not copies.is_current(attempt.before, attempt.ports, document, ports):
        attempt.work_on(attempt.write(lambda tx: copies.save(tx, document, ports)))
    message = ironic_nodes.refusal(attempt.node)
    _see_power(attempt, document)
    return None if message is None else Fail(Reason.REGISTRY_REFUSED, message)


def record_changes(attempt: Attempt) -> Document:
    """Return what hooks and rules have changed, as the payload of the request that writes it to Ironic."""
    edits, present = attempt.port_changes, {port.uuid: port for port in attempt.ports}
    updated = {
        uuid: changed
        for uuid, port in edits.updated.items()
        if uuid in present and (changed := ironic_nodes.port_changes(present[uuid], port))
    }
    changes = {
        "node": ironic_nodes.changes(attempt.before, attempt.node),
        "added": [ironic_nodes.port_document(port) for port in edits.added],
        "updated": updated,
        "removed": sorted(edits.removed),
    }
    return {_CHANGES: changes} if any(changes.values()) else {}


def apply(ironic: IronicClient, attempt: Attempt) -> Fail | None:
    """Write to Ironic what was recorded and it does not have yet; return why that is impossible, if so."""
    changes = attempt.request.payload.get(_CHANGES)
    if not changes:
        return None
    uuid = attempt.node.uuid
    with as_bmc_errors():
        document = ironic.node(uuid)
    if document is None:
        return _GONE
    state = str(document.get("provision_state"))
    if attempt.before.state is State.PROCESSING and ironic_nodes.is_in_use(state):
        return Fail(Reason.REGISTRY_REFUSED, f"the node has become {state} in Ironic; nothing was changed there")
    wanted = ironic_nodes.with_secrets(changes["node"], attempt.with_plain_secrets(attempt.node))
    traits = ironic_nodes.traits(changes["node"], document.get("traits") or ())
    if patch := ironic_nodes.patch(wanted, document):
        document = _command(attempt, partial(ironic.update_node, uuid, patch))
    _see_power(attempt, document)
    if traits is not None:
        _command(attempt, partial(ironic.set_traits, uuid, traits))
    _apply_to_ports(attempt, ironic, changes)
    attempt.note("registry", "the results are in Ironic")
    return None


def _see_power(attempt: Attempt, document: Document) -> None:
    """Note the power that Ironic reports, unless the driver has something to say about it."""
    power = Power.of(document.get("power_state"))
    changes = document.get("target_power_state") is not None
    if power.settled and not changes and not ironic_nodes.is_in_use(str(document.get("provision_state"))):
        attempt.reported_power.saw(power)


def _apply_to_ports(attempt: Attempt, ironic: IronicClient, changes: dict[str, Any]) -> None:
    """Create, update and delete ports; a port that Ironic rejects is a warning, as is a MAC of another node."""
    if not (changes["added"] or changes["updated"] or changes["removed"]):
        return
    with as_bmc_errors():
        present = {str(port["uuid"]): port for port in ironic.ports_of(attempt.node.uuid)}
    macs = {port["address"] for port in present.values()}
    for uuid in changes["removed"]:
        if uuid in present:
            _try(attempt, partial(ironic.remove_port, uuid), f"delete port {uuid}")
    for port in changes["added"]:
        mac = port["address"]
        if mac not in macs and _try(attempt, partial(ironic.add_port, port), f"add port {mac}") is False:
            _check_owner(attempt, ironic, mac)
    for uuid, wanted in changes["updated"].items():
        if uuid in present and (patch := ironic_nodes.patch(wanted, present[uuid])):
            _try(attempt, partial(ironic.update_port, uuid, patch), f"update port {present[uuid]['address']}")


def _check_owner(attempt: Attempt, ironic: IronicClient, mac: str) -> None:
    with as_bmc_errors():
        port = ironic.port_with(mac)
    if port is not None and port.get("node_uuid") != attempt.node.uuid:
        message = f"no port added for {mac}: it is a port of node {port.get('node_uuid')} in Ironic"
        attempt.warn("registry", message, reason=Reason.PORT_CONFLICT)


def _try(attempt: Attempt, call: Callable[[], Any], action: str) -> Any:
    try:
        return _command(attempt, call)
    except BmcError as exc:
        if exc.transient:
            raise
        attempt.warn("registry", f"could not {action}: {exc}", reason=exc.reason)
        return None


def _command(attempt: Attempt, call: Callable[[], T]) -> T:
    def call_ironic() -> T:
        with as_bmc_errors():
            return call()

    return attempt.command(call_ironic)


# The weight of the newest duration, and the share of the usual one after which to look for the first time.
_NEWEST_WEIGHT: Final = 0.2
_FIRST_LOOK_SHARE: Final = 0.75
# Seconds: however slow others were, this one may be quick.
_MAX_FIRST_LOOK_SECONDS: Final = 15.0


class IronicPowerTimes:
    """The usual seconds between a power command and its effect."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._usual: dict[Power, float] = {}

    def learn_change(self, power: Power, seconds: float) -> None:
        """Learn from a change that took so long."""
        with self._lock:
            usual = self._usual.get(power, seconds)
            self._usual[power] = usual + _NEWEST_WEIGHT * (seconds - usual)

    def first_look(self, power: Power) -> float:
        """Return after how many seconds it is worth to look for the first time; 0 if that is not known."""
        with self._lock:
            return min(_FIRST_LOOK_SHARE * self._usual.get(power, 0.0), _MAX_FIRST_LOOK_SECONDS)
