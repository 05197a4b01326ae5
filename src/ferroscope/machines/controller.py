"""The controller: finds out which Machines have changed, or their nodes, and looks at them one by one.

It is level-triggered: whatever is known to have changed is looked at, and everything every ``resync`` seconds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Final, Protocol

import structlog

from ferroscope.config.integration_options import MachinesSettings
from ferroscope.contracts.errors import LeaseLostError, NotFoundError, StaleLeaseError, StoreUnavailableError
from ferroscope.contracts.queue import Clock
from ferroscope.contracts.telemetry import SILENT, Meter
from ferroscope.core.model import Lease
from ferroscope.machines.client import MachineClient, Machines
from ferroscope.machines.look import Look
from ferroscope.machines.nodes import Nodes
from ferroscope.machines.objects import OBSERVED, Machine
from ferroscope.remote.kubernetes import KubernetesError

_log = structlog.get_logger(__name__)

LEASE: Final = "machines/"
_PERIOD: Final = 0.5  # seconds between two steps
_AGAIN: Final = (1.0, 2.0, 5.0, 15.0, 60.0)  # seconds until a Machine that failed is looked at again
_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


class Leading(Protocol):
    """See ``contracts.store.StepLeadership``."""

    @property
    def lease(self) -> Lease: ...

    @property
    def epoch(self) -> int: ...

    def keep_alive(self) -> None: ...


class MachineController:
    """A periodic task (see ``periodic.singleton``)."""

    def __init__(
        self,
        kube: MachineClient,
        nodes: Nodes,
        machines: Machines,
        settings: MachinesSettings,
        *,
        clock: Clock,
        meter: Meter = SILENT,
    ) -> None:
        self.name = LEASE + settings.cluster
        self.period = _PERIOD
        self._kube = kube
        self._nodes = nodes
        self._machines = machines
        self._settings = settings
        self._clock = clock
        self._meter = meter
        self._epoch = 0
        self._polled_at = self._resynced_at = -math.inf
        self._pending: dict[str, None] = {}
        self._failed: dict[str, tuple[int, float]] = {}
        self._problem = ""

    def step(self, leading: Leading) -> str:
        """Look at what has changed; return a status."""
        if not self._machines.is_complete(self._settings.namespaces or ("",)):
            return "waiting for the list of Machines"
        now = self._clock.monotonic()
        whole = leading.epoch != self._epoch or now - self._resynced_at >= self._settings.resync
        self._problem = ""
        try:
            self._gather(now, whole=whole)
            self._epoch = leading.epoch
            with self._nodes.led_by(leading.lease):
                self._work(leading)
                if whole and self._settings.observe_namespace:
                    self._observe(leading)
        except StaleLeaseError as exc:
            raise LeaseLostError(str(exc)) from exc
        except (KubernetesError, StoreUnavailableError, NotFoundError) as exc:
            self._problem = str(exc)
            _log.warning("Machines are left for later", cluster=self._settings.cluster, why=str(exc))
        known, waiting = len(self._machines.every()), len(self._pending) + len(self._failed)
        self._meter.machines(known, waiting)
        status = f"{known} Machines, {waiting} to look at, {self._kube.writes} writes"
        return f"{status}; {self._problem}" if self._problem else status

    def _gather(self, now: float, *, whole: bool) -> None:
        """Add the Machines that may have changed to those to be looked at."""
        for key in self._machines.take_changed():
            self._pending[key] = None
            self._failed.pop(key, None)
        if now - self._polled_at >= self._settings.poll:
            self._polled_at = now
            if changed := set(self._nodes.changed()):
                self._pending |= {one.key: None for one in self._machines.every() if one.node in changed}
        if whole:
            self._resynced_at = now
            self._nodes.forget()
            self._pending |= {one.key: None for one in self._machines.every()}
        self._pending |= {key: None for key, (_, at) in self._failed.items() if at <= now}

    def _work(self, leading: Leading) -> None:
        owners = self._owners()
        while self._pending:
            key = next(iter(self._pending))
            leading.keep_alive()
            if (machine := self._machines.get(key)) is None:
                self._failed.pop(key, None)
            elif not self._look_at(machine, owners):
                tries = min(self._failed.get(key, (0, 0.0))[0], len(_AGAIN) - 1)
                self._failed[key] = (tries + 1, self._clock.monotonic() + _AGAIN[tries])
                self._meter.machine_failed()
            else:
                self._failed.pop(key, None)
            del self._pending[key]

    def _owners(self) -> dict[str, Machine]:
        """Return the Machine to which each node belongs: of several that claim it, the oldest."""
        found: dict[str, Machine] = {}
        for one in sorted(self._machines.every(), key=lambda one: (not one.manages, one.age), reverse=True):
            found[one.node] = one
        return found

    def _look_at(self, machine: Machine, owners: Mapping[str, Machine]) -> bool:
        """Bring one Machine and its node in step; False: look again soon. ``KubernetesError`` of an outage."""
        try:
            return Look(self._kube, self._nodes, self._machines, self._settings, machine, owners).done()
        except KubernetesError as exc:
            if exc.transient:
                raise
            if exc.conflict or exc.status == 404:
                return False  # it has changed meanwhile; the watch tells how
            if exc.status == 401:
                raise
            _log.warning("cannot write a Machine", machine=machine.key, error=str(exc), status=exc.status)
            self._problem = f"{machine.key}: {exc}"
        except (StaleLeaseError, StoreUnavailableError):
            raise
        except Exception:  # noqa: BLE001  # one Machine must not keep the others from being looked at
            _log.exception("cannot look at a Machine", machine=machine.key)
            self._problem = f"{machine.key}: internal error; see the log"
        return False

    def _observe(self, leading: Leading) -> None:
        """Make Machines for nodes that no Machine describes; delete those whose nodes are gone."""
        namespace = self._settings.observe_namespace
        owners = self._owners()
        names = {one.metadata.name for one in self._machines.every() if one.metadata.namespace == namespace}
        there = set()
        for node in self._nodes.every():
            leading.keep_alive()
            there.add(node.uuid)
            owner = owners.get(node.uuid)
            if owner is None and not node.inbox:
                name = node.name if node.name and _NAME.fullmatch(node.name) and node.name not in names else node.uuid
                spec = {"uuid": node.uuid, "policy": "Observe", "bmc": {"driver": node.driver}}
                try:
                    self._kube.create(namespace, name, {OBSERVED: "true"}, spec)
                except KubernetesError as exc:
                    if not exc.conflict:
                        raise
                names.add(name)
        for one in self._machines.every():
            made = one.metadata.labels.get(OBSERVED) == "true" and not one.manages and not one.deleting
            if made and (one.node not in there or owners[one.node] is not one):
                leading.keep_alive()
                try:
                    self._kube.delete(one)
                except KubernetesError as exc:
                    if not exc.conflict:
                        raise
