"""One look at one Machine: compares it with its node, changes the node through the API, and writes the status.

Nothing is written that is there already. Each write to Kubernetes depends on the version that was read; each write to a
node depends on the lease. What was interrupted anywhere is found undone, or done, by the next look:

* the finalizer is set before the node is created, and the node's UUID follows from that of the object;
* an order to inspect is written into the status first, with the newest inspection: a newer one means that it is done;
* what object and node agreed on is written last; until then, equal values speak for themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import structlog

from ferroscope.api.http.errors import ApiError
from ferroscope.config.integration_options import MachinesSettings
from ferroscope.contracts.errors import ConflictError, StoreUnavailableError
from ferroscope.core.states import ACTIVE, State
from ferroscope.machines import mapping, objects
from ferroscope.machines.client import MachineClient, Machines
from ferroscope.machines.mapping import Fact, Login, SpecError, fact
from ferroscope.machines.nodes import Nodes, Seen
from ferroscope.machines.objects import APPLY, FINALIZER, INSPECT, Machine, Order
from ferroscope.remote.kubernetes import KubernetesError

_log = structlog.get_logger(__name__)


class Look:
    """``done`` carries it out; ``owners``: by node, the Machine to which it belongs."""

    def __init__(
        self,
        kube: MachineClient,
        nodes: Nodes,
        machines: Machines,
        settings: MachinesSettings,
        machine: Machine,
        owners: Mapping[str, Machine],
    ) -> None:
        self._kube = kube
        self._nodes = nodes
        self._machines = machines
        self._settings = settings
        self._machine = machine
        self._known = machine.known()
        self._owner = owners.get(machine.node)
        self._login: Login | None = None
        self._facts: list[Fact] = []
        self._events: list[Fact] = []
        self._again = False
        # What stays in the status unless this look finds something else.
        self._applied = self._known.applied
        self._credentials = self._known.credentials
        self._inspect = self._known.inspect
        self._apply = self._known.apply
        self._hardware_data = self._known.hardware_data

    def done(self) -> bool:
        """Return False if it has to be looked at again soon."""
        machine = self._machine
        if machine.deleting:
            return self._released()
        if not machine.manages:
            seen = self._nodes.get(machine.node)
            missing = f"node {machine.node} does not exist"
            self._facts = [
                fact("Enrolled", True, "Observed") if seen else fact("Enrolled", False, "NodeMissing", missing)
            ]
            return self._saved(seen)
        if FINALIZER not in machine.metadata.finalizers:
            self._written(self._kube.set_finalizers(machine, [*machine.metadata.finalizers, FINALIZER]))
        seen = self._nodes.get(machine.node)
        try:
            self._check(seen)
            if seen is None:
                self._create()
                seen = self._nodes.get(machine.node)
            if seen is not None:
                self._follow(seen)
                seen = self._nodes.get(machine.node)
        except (SpecError, ApiError) as exc:
            self._refused(exc, seen)
            if not self._known.node_uuid:
                seen = None
        return self._saved(seen)

    # The node follows the object.

    def _check(self, seen: Seen | None) -> None:
        machine = self._machine
        mapping.check(machine, self._nodes.drivers)
        if self._owner is not None and self._owner.key != machine.key:
            raise SpecError(f"node {machine.node} belongs to the older Machine {self._owner.key}", "Conflict")
        if machine.spec.uuid and not self._known.node_uuid and seen is not None and not self._settings.adopt_nodes:
            message = f"node {machine.node} exists, and [machines] adopt_nodes does not allow to take it over"
            raise SpecError(message, "Conflict")
        name, namespace = machine.spec.bmc.credentials_secret, machine.metadata.namespace
        if name:
            secret = self._kube.secret(namespace, name)
            if secret is None:
                raise SpecError(f"Secret {name} does not exist in namespace {namespace}", "SecretNotFound")
            self._login = mapping.login_of(secret[0], name, secret[1])

    def _create(self) -> None:
        machine = self._machine
        if self._known.node_uuid:
            message = f"node {machine.node} was deleted elsewhere; to enroll it again, delete this object and apply it"
            raise SpecError(message, "NodeDeleted")
        body = mapping.creation(machine, self._prefix, self._login)
        if clash := self._nodes.clash(machine.node, body["driver_info"], mapping.macs_of(machine)):
            needs = "" if self._settings.adopt_nodes else ", which needs [machines] adopt_nodes"
            raise SpecError(f"{clash}; delete it there, or take it over by its UUID in spec.uuid{needs}", "Conflict")
        self._nodes.create(machine.key, body)
        self._credentials = self._login.version if self._login else ""
        self._known = msgspec.structs.replace(self._known, credentials=self._credentials)

    def _follow(self, seen: Seen) -> None:
        machine, node, order = self._machine, seen.node, self._machine.order(APPLY)
        force = order is not None and not _is_done(order, self._known.apply)
        planned = mapping.plan(self._known, machine, node, seen.macs, self._prefix, self._login, force=force)
        if operations := mapping.patch(planned, node, self._prefix, self._login):
            self._nodes.change(machine.key, machine.node, operations)
        for mac in planned.add_macs:
            self._nodes.add_mac(machine.key, machine.node, mac)
        for mac in planned.remove_macs:
            self._nodes.remove_mac(machine.key, mac)
        self._credentials = self._login.version if self._login else ""
        self._applied = planned.applied
        self._facts = [fact("Enrolled", True, "Enrolled"), mapping.in_step(planned)]
        self._apply = self._ended(order, Order() if order is None else Order(value=order[1], done=True))
        self._inspect = self._ordered()

    def _ordered(self) -> Order | None:
        """Start an inspection if an annotation orders it, once per value; return what the status has to say of it."""
        machine, known, order = self._machine, self._known.inspect, self._machine.order(INSPECT)
        if order is None or _is_done(order, known):
            return known if known is not None and known.value else None
        newest = self._nodes.newest_inspection(machine.node) or "none"
        if known is None or known.value != order[1] or known.done:
            known = Order(value=order[1], before=newest)
            self._write_status(machine.status | {"inspect": msgspec.to_builtins(known)})
        if newest == known.before:
            try:
                self._nodes.inspect(machine.key, machine.node)
            except ApiError as exc:
                if exc.status >= 500:
                    raise
                self._events.append(fact("Inspect", False, "InspectionRefused", self._hidden(exc.message)))
        return self._ended(order, Order(value=order[1], before=known.before, done=True))

    def _ended(self, order: tuple[str, str] | None, result: Order) -> Order | None:
        """Remove the annotation of an order that was carried out, if it has no value; otherwise remember the value."""
        if order is None or order[1]:
            return result if result.value else None
        self._written(self._kube.remove_annotation(self._machine, order[0]))
        return None

    def _refused(self, exc: SpecError | ApiError, seen: Seen | None) -> None:
        """Tell why the node cannot follow."""
        enrolled = seen is not None and bool(self._known.node_uuid)
        if isinstance(exc, SpecError):
            reason, message = exc.reason, str(exc)
            self._again = reason != "InvalidSpec"
        else:
            if exc.status == 503:
                raise StoreUnavailableError(exc.message) from exc
            reason, message = {403: "Forbidden", 409: "Conflict"}.get(exc.status, "InvalidSpec"), exc.message
            if isinstance(exc.__cause__, ConflictError) and exc.__cause__.field == "name":
                reason = "NameTaken"
            self._again = exc.status not in (400, 403)
        self._facts = [fact("Enrolled", True, "Enrolled")] if enrolled else []
        self._facts.append(fact("InStep" if enrolled else "Enrolled", False, reason, self._hidden(message)))

    def _released(self) -> bool:
        """Delete the node of a Machine that is being deleted, and let the Machine go; or tell why not."""
        machine, known = self._machine, self._known
        if FINALIZER not in machine.metadata.finalizers:
            return True
        seen = self._nodes.get(machine.node) if machine.manages else None
        mine = known.node_uuid == machine.node or not machine.spec.uuid
        if seen is not None and mine and machine.spec.on_delete == "Delete":
            try:
                self._nodes.delete(machine.key, machine.node)
            except ApiError as exc:
                if exc.status == 503:
                    raise StoreUnavailableError(exc.message) from exc
                self._facts = [fact("Enrolled", True, "Enrolled"), fact("Released", False, _kept(seen), exc.message)]
                self._again = True
                return self._saved(seen)
        left = [one for one in machine.metadata.finalizers if one != FINALIZER]
        self._written(self._kube.set_finalizers(machine, left))
        return True

    # The object shows the node.

    def _saved(self, seen: Seen | None) -> bool:
        """Write the status if it has changed, and an Event for each condition that has."""
        status: dict[str, Any] = {}
        if seen is not None:
            status = mapping.of_node(seen.node, seen.reason)
            self._facts.append(mapping.inspected(seen.node, seen.reason))
            if self._settings.hardware_data:
                self._save_hardware(seen)
        elif self._known.node_uuid and self._machine.manages:
            status["nodeUUID"] = self._known.node_uuid
        machine = self._machine
        before, generation = machine.known().conditions, machine.metadata.generation
        kept = {
            "applied": self._applied, "credentials": self._credentials, "hardwareData": self._hardware_data,
            "inspect": msgspec.to_builtins(self._inspect), "apply": msgspec.to_builtins(self._apply),
        }  # fmt: skip
        status |= {name: value for name, value in kept.items() if value}
        status["observedGeneration"] = generation
        status["conditions"] = mapping.conditions(before, self._facts, generation, self._nodes.now())
        if status != machine.status:
            self._write_status(status)
        for one in mapping.news(before, self._facts) + self._events:
            _log.info("condition", machine=machine.key, type=one.type, status=one.status, reason=one.reason)
            try:
                text = one.message or f"{one.type}: {one.reason}"
                self._kube.tell(machine, one.reason, text, warning=one.is_bad)
            except KubernetesError as exc:
                _log.warning("cannot record an Event", machine=machine.key, error=str(exc))
        return not self._again

    def _save_hardware(self, seen: Seen) -> None:
        """Write the HardwareData of a new inventory."""
        node = seen.node
        if node.state is not State.FINISHED or node.inspection in (None, self._hardware_data):
            return
        try:
            spec = objects.specification(*self._nodes.inventory(node.uuid))
        except ApiError as exc:
            _log.warning("cannot read an inventory", machine=self._machine.key, error=exc.message)
            self._again = True
            return
        if not self._kube.save_hardware(self._machine, spec):
            message = f"HardwareData {self._machine.metadata.name} belongs to somebody else and was not changed"
            self._events.append(fact("HardwareData", False, "HardwareDataConflict", message))
        self._hardware_data = node.inspection or ""

    def _hidden(self, text: str) -> str:
        return text if self._login is None else self._login.hidden(text)

    def _write_status(self, status: Mapping[str, Any]) -> None:
        self._written(self._kube.set_status(self._machine, status))

    def _written(self, machine: Machine) -> None:
        """Take what we have written ourselves."""
        self._machine = machine
        self._machines.put(machine, ours=True)

    @property
    def _prefix(self) -> str:
        return self._nodes.prefix(self._machine.spec.bmc.driver)


def _is_done(order: tuple[str, str], known: Order | None) -> bool:
    return known is not None and known.done and known.value == order[1]


def _kept(seen: Seen) -> str:
    """Return the reason why a node is not deleted."""
    node = seen.node
    if node.attributes.get("protected"):
        return "Protected"
    return "BeingInspected" if node.state in ACTIVE else "InUse" if node.instance_uuid else "Refused"
