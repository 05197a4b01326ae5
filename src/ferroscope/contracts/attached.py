"""The seam of an attached Ironic, to which the nodes then belong: what the service asks it, and when.

Which one is attached, ``[registry] backend`` says; it is one of the ``ferroscope.backends`` (see ``config.added``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from ferroscope.config.options import Settings
from ferroscope.contracts.bmc import Bmc, Switch
from ferroscope.contracts.queue import StopFlag
from ferroscope.contracts.remote import IronicClient, NodeSource
from ferroscope.core.delivery import Fail
from ferroscope.core.lookup import Evidence
from ferroscope.core.model import Document, Node


class Attached:
    """Nothing is attached: the nodes are our own. An attached Ironic overrides what is different then.

    ``context`` is ``api.http.context.ApiContext``. In inspections, the ``attempt`` is what the worker's
    tasks get.
    """

    second_hand = False
    """Whether power states are those that somebody else has observed."""
    reinspects = True
    """Whether inspections may start by themselves."""

    def client(self) -> IronicClient:
        """Return the client of Ironic, which its BMC driver uses; ``ValueError``."""
        raise ValueError("the driver ironic belongs to [registry] backend = ironic")

    def source(self) -> NodeSource | None:
        """Return what says which nodes exist; None if only we do."""
        return None

    def enabled(self, drivers: Sequence[str]) -> Sequence[str]:
        """Return the BMC drivers to load, of those that are configured."""
        return drivers

    def serving(self, drivers: Mapping[str, Bmc]) -> Mapping[str, Bmc]:
        """Return the loaded drivers by the names that nodes have."""
        return drivers

    def tasks(self, _store: Any) -> Iterable[Callable[[], Any]]:
        """Yield what makes each further periodic task."""
        return ()

    # Calls of the API

    def check_change(self, endpoint: str) -> None:
        """Refuse a call that changes what is not ours; an ``ApiError``."""

    def prepare(self, context: Any, ident: str, *, manage_boot: bool = True) -> None:
        """Look at the node before an inspection of it is requested; an ``ApiError``. ``manage_boot``: we boot it."""

    def search(self, _context: Any, _evidence: Evidence) -> bool:
        """Return whether one was found, and noted, for a machine that has no node here."""
        return False

    def sources(self, node: Node) -> Mapping[str, Any]:
        """Return who has set the values of the node, as far as that is known."""
        return node.sources

    # Inspections

    def begin(self, _attempt: Any) -> Fail | None:
        """Bring the node up to date at the start; return why it must not be inspected, if so."""
        return None

    def recorded(self, _attempt: Any) -> Document:
        """Return what hooks and rules have changed, for ``apply``."""
        return {}

    def apply(self, _attempt: Any) -> Fail | None:
        """Write what was recorded where it belongs; return why that is impossible, if so."""
        return None

    def pace(self, _attempt: Any, _power: Switch, pause: float, longest: float, _seconds: float) -> tuple[float, float]:
        """Return the first and the longest pause between looks at the power, at most ``seconds`` after a command."""
        return pause, longest

    def reached(self, attempt: Any, power: Switch, took: float) -> None:
        """Note that the commanded power state was seen, and after how many seconds."""


class Backend(Protocol):
    """How it is attached."""

    def check(self, settings: Settings) -> None:
        """Reject settings with which it cannot be attached, without asking anybody; ``SetupError``."""

    def attach(self, settings: Settings, stop: StopFlag) -> Attached:
        """Attach it; ``stop`` interrupts its waits. It may be unavailable for now; ``SetupError``: it refuses us."""
