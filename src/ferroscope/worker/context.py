"""What a task works on: copies, so that nothing changes before the transaction at its end.

A task changes ``node`` and says what shall become of ports and data; ``loop`` commits all of it together with the new
state and the end of the request, or none of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any, Final

import msgspec

from ferroscope.config.options import Settings
from ferroscope.contracts.bmc import Bmc, Power
from ferroscope.contracts.data import Part
from ferroscope.contracts.errors import BmcError
from ferroscope.contracts.queue import Clock
from ferroscope.contracts.remote import ObjectStoreError
from ferroscope.contracts.store import Query
from ferroscope.core import bmc_access, json_repair
from ferroscope.core.model import Document, Entry, Inspection, Node, Port, Request, Severity
from ferroscope.core.notification import ChangeView
from ferroscope.core.reasons import Reason
from ferroscope.core.states import COMMANDS
from ferroscope.db.transaction import Fence, Transaction
from ferroscope.hardware import diff, expectations, search_index
from ferroscope.hardware.expectations import Compiled
from ferroscope.hooks.base import PortChanges
from ferroscope.storage.reader import previous
from ferroscope.transition import step
from ferroscope.worker.attempt import Attempt, Services
from ferroscope.worker.bmc import BmcObserver, Trail, Unobserved, observed

# Seconds for which the power state counts that an attached Ironic has reported. Short: the node might be used by others
# in the meantime, whose machine must be left alone.
_MOMENT: Final = 2.0


class Journal:
    """Timeline entries of an attempt, kept until a transaction writes them.

    ``entries`` has the time of the monotonic clock at which each was noted. In the database each gets the
    transaction's time minus its age when ``begin_writing`` was called, so that a slow transaction moves nothing.
    """

    def __init__(self, clock: Clock) -> None:
        self.entries: list[tuple[float, Entry]] = []
        self._clock = clock
        self._began_at: float | None = None

    def add(self, entry: Entry) -> None:
        self.entries.append((self._clock.monotonic(), entry))

    def begin_writing(self) -> None:
        """Take now as the time at which the following transaction begins, however often it is repeated."""
        self._began_at = self._clock.monotonic()

    def write(self, tx: Transaction) -> None:
        began = self._began_at if self._began_at is not None else self._clock.monotonic()
        tx.journal.append(
            msgspec.structs.replace(entry, at=tx.now - max(0.0, began - noted)) for noted, entry in self.entries
        )

    def clear(self) -> None:
        """Forget what has been written."""
        self.entries, self._began_at = [], None


class TaskContext:
    """One attempt's copies and results.

    ``before`` is the node as it was locked; ``node`` and ``ports`` are copies to work on. To be stored with the
    results: ``port_changes``, ``parts`` (data of the inspection), ``index_rows`` (the search index; None: unchanged),
    ``bmc_addresses`` (None: unchanged), ``hardware_changes`` (what the event contains) and ``deviations`` from what is
    expected (None: not checked), which are stored although the inspection fails. To be stored with the
    next intent: ``secret_delivery`` (how the machine gets its secret; None: unchanged) and ``forgotten`` (a key of the
    node's internal data to delete; None: none). ``sets_next_boot``: this attempt has set the
    boot device of the next boot. ``doing`` names third-party code that is running, such as a hook.
    """

    def __init__(
        self,
        attempt: Attempt,
        services: Services,
        node: Node,
        inspection: Inspection | None,
        *,
        bmc: Bmc | None,
        observer: BmcObserver | None = None,
    ) -> None:
        self.attempt = attempt
        self.services = services
        self.journal = Journal(services.clock)
        self.before = node
        self.node = msgspec.structs.replace(node, **_documents(node))
        self.inspection = inspection
        self.port_changes = PortChanges()
        self.parts: dict[Part, bytes] = {}
        self.index_rows: list[search_index.IndexRow] | None = None
        self.hardware_changes: list[ChangeView] = []
        self.deviations: list[Document] | None = None
        self.bmc_addresses: frozenset[str] | None = None
        self.secret_delivery: str | None = None
        self.forgotten: str | None = None
        self.sets_next_boot = False
        self.bmc_observer: BmcObserver = observer or Unobserved()
        self.trail: Trail | None = None
        if services.tracer is not None and inspection is not None and attempt.request.inspection == inspection.uuid:
            self.trail = Trail(services.tracer, services.clock, inspection, attempt.request)
        # None: it is not enabled here
        self.known_driver = observed(bmc, self.bmc_observer, services.secrets.revealed, self.trail)
        self.doing = ""
        self._power_seen: tuple[Power, float] | None = None

    @property
    def request(self) -> Request:
        return self.attempt.request

    @property
    def settings(self) -> Settings:
        return self.services.settings

    @cached_property
    def ports(self) -> list[Port]:
        """The node's ports; while the node is locked, only an operator may change them."""
        query = Query(filters={"node": self.node.uuid})
        return list(self.services.store.read(lambda tx: tx.ports.list(query)))

    def driver(self) -> Bmc:
        """Return the node's driver; ``BmcError`` if it is not enabled or must not be sent the stored secrets."""
        if self.known_driver is None:
            raise BmcError(
                f"driver {self.node.driver!r} is not enabled: add it to [drivers] enabled",
                transient=False,
                reason=Reason.DRIVER_UNKNOWN,
            )
        if why := bmc_access.withheld(self.node, networks=self.settings.drivers.bmc_networks):
            raise BmcError(why, transient=False, reason=Reason.BMC_NOT_ALLOWED)
        return self.known_driver

    def saw_power(self, power: Power) -> None:
        """Remember for a moment what an attached Ironic has reported, so that it is not asked again."""
        self._power_seen = (power, self.services.clock.monotonic())

    def forget_power(self) -> None:
        """The power is about to change."""
        self._power_seen = None

    def recent_power(self) -> Power | None:
        """Return the power that was reported a moment ago; None if it has to be asked."""
        if self._power_seen is None or self.services.clock.monotonic() - self._power_seen[1] > _MOMENT:
            return None
        return self._power_seen[0]

    def note(
        self,
        name: str,
        message: str,
        *,
        severity: Severity = Severity.INFO,
        reason: str | None = None,
        detail: Document | None = None,
    ) -> None:
        """Add a step to the timeline; it is written when the attempt ends, or with the next intent."""
        process = self.services.process
        entry = step(self.node, name, message, process=process, severity=severity, reason=reason, detail=detail)
        if self.request.event in COMMANDS:
            entry = msgspec.structs.replace(entry, inspection=None)
        self.journal.add(entry)

    def intend(self, effect: str, fence: Fence | None = None, *, seen: Document | None = None) -> None:
        """Record the intent of ``effect`` as ``Attempt.intend`` does, with the timeline and BMC addresses so far."""
        self.journal.begin_writing()
        self.attempt.intend(effect, fence, seen=seen, save=self.save_progress)
        self.journal.clear()
        self.bmc_addresses = self.secret_delivery = self.forgotten = None

    def save_progress(self, tx: Transaction) -> None:
        """Write what has not been written yet of timeline, BMC addresses and delivery of the secret."""
        if self.secret_delivery is not None and self.inspection is not None:
            tx.inspections.update(self.inspection.uuid, secret_delivery=self.secret_delivery)
        if self.forgotten is not None:
            node = tx.nodes.get(self.node.uuid, lock=True)
            internal = {key: value for key, value in node.internal.items() if key != self.forgotten}
            tx.nodes.update(msgspec.structs.replace(node, internal=internal))
        if self.bmc_addresses is not None:
            tx.addresses.set_bmc(self.node.uuid, self.bmc_addresses)
        self.journal.write(tx)

    def add_ports(self, ports: list[Port]) -> None:
        """Add ports to the node immediately, under the claim: the machine is about to boot. ``ConflictError``."""

        def work(tx: Transaction) -> None:
            tx.requests.hold(self.attempt.claim)
            tx.ports.add(ports)

        self.services.store.write(work)
        self.ports.extend(ports)

    def save_from_registry(self, save: Callable[[Transaction], Node]) -> None:
        """Run ``save`` under the claim, and go on with the node that it returns, and with its ports."""

        def work(tx: Transaction) -> Node:
            tx.requests.hold(self.attempt.claim)
            return save(tx)

        self.before = self.services.store.write(work)
        self.node = msgspec.structs.replace(self.before, **_documents(self.before))
        self.__dict__.pop("ports", None)

    def ports_elsewhere(self, macs: Iterable[str]) -> dict[str, str]:
        """Return which of these MACs are ports of other nodes: MAC -> that node's UUID."""
        query = Query(filters={"address": tuple(macs)})
        if not query.filters["address"]:
            return {}
        found = self.services.store.read(lambda tx: tx.ports.list(query))
        return {port.address: port.node for port in found if port.node != self.node.uuid}

    def named(self, name: str) -> str | None:
        """Return the UUID of another node with this name; None if there is none."""
        found = self.services.store.read(lambda tx: tx.nodes.list(Query(filters={"name": name})))
        return next((node.uuid for node in found if node.uuid != self.node.uuid), None)

    def previous_inventory(self) -> Document | None:
        """Return the inventory of the node's newest inspection that finished before this one; None if there is none."""
        # It is helpful, not required: an object store that is down must not fail the inspection.
        return self.previous_data(("inventory",), "continuing without it").get("inventory")

    def previous_data(self, parts: tuple[Part, ...], without: str) -> dict[Part, Document]:
        """Return data of the node's newest inspection that finished before this one, all of it or none.

        ``without`` says what happens without it, for the note if an object store fails.
        """
        services = self.services
        found = services.store.read(lambda tx: previous(tx, self.node.uuid, self.inspection, parts))
        try:
            stored = services.archive.fetch(found) if found is not None else {}
        except ObjectStoreError as exc:
            message = f"cannot read the previous inventory, {without}: {exc}"
            self.note("previous inventory", message, severity=Severity.WARNING)
            return {}
        if len(stored) < len(parts):
            return {}
        return {part: json_repair.decode_clean(stored[part]) for part in parts}

    def begins(self, hook: str, what: str = "") -> None:
        """Record what the attempt is running: the named hook, or something else."""
        self.doing = what or f"the hook {hook}"
        if self.trail is not None:
            self.trail.begins(f"hook {hook}" if hook else "rules")

    def update_search_index(self, inventory: Document, plugin_data: Document) -> list[search_index.IndexRow]:
        """Return the rows of the search index for the results; nothing is written if they have not changed."""
        found = search_index.learn(inventory, plugin_data)
        self.node.hardware = found.summary
        if found.digest != self.node.search_digest:
            self.node.search_digest, self.index_rows = found.digest, found.rows
            if self.before.search_digest is not None:
                self.hardware_changes = self._differences(inventory, plugin_data)
        return found.rows

    def compare_with_expectations(self, expected: Iterable[Compiled], rows: list[search_index.IndexRow]) -> str | None:
        """Note how the hardware deviates from what is expected; return why the inspection fails, if it does."""
        self.deviations = msgspec.to_builtins(expectations.deviations(expected, rows, self.node))
        message, severity, reason = expectations.timeline_entry(self.deviations)
        changed = expectations.noted(self.node, self.deviations)
        if changed is not None:
            self.node = changed
        fails = any(one["severity"] == "failure" for one in self.deviations)
        if not fails and (self.deviations or changed is not None):
            self.note("expectations", message, severity=severity, reason=reason)
        return message if fails else None

    def _differences(self, inventory: Document, plugin_data: Document) -> list[ChangeView]:
        """Return the differences from the previous inspection."""
        stored = self.previous_data(("inventory", "plugin_data"), "so nothing says what has changed")
        if not stored:
            return []
        before = (stored["inventory"], stored["plugin_data"])
        changes = diff.compare(before, (inventory, plugin_data))
        return [ChangeView(**msgspec.structs.asdict(change)) for change in changes]


def _documents(node: Node) -> dict[str, Any]:
    """Return deep copies of the node's documents, so that hooks may change them in place."""
    return {
        name: msgspec.json.decode(msgspec.json.encode(value)) if value else {}
        for name in Node.__struct_fields__
        if isinstance(value := getattr(node, name), dict)
    }
