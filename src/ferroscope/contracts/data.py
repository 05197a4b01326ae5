"""What an inspection brought and made, part by part, and which of the parts are objects elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, Protocol

import msgspec

from ferroscope.contracts.later import Later
from ferroscope.core.lookup import Rejection
from ferroscope.hardware import expressions
from ferroscope.hardware.search_index import IndexRow

Part = Literal["inventory", "unprocessed", "plugin_data", "out_of_band", "logs"]


class InspectionData(Protocol):
    """What the ramdisk sent and what hooks made of it, as JSON bytes, one of each per inspection.

    ``inventory`` is never changed; ``unprocessed`` is everything else that came with it;
    ``plugin_data`` is that after the hooks; ``out_of_band`` is what the BMC said of the hardware.
    ``logs`` is what the ramdisk logged, as it sent it: a tar archive, no JSON.
    """

    def save(self, inspection: str, node: str, parts: dict[Part, bytes]) -> None:
        """Store or replace these parts."""

    def load(self, inspection: str, parts: Sequence[Part]) -> dict[Part, bytes]:
        """Return those of the parts that are stored here; ``objects`` knows of those elsewhere."""

    def load_later(self, inspection: str, parts: Sequence[Part]) -> Later[dict[Part, bytes]]:
        """Ask for them; see ``contracts.later``."""

    def held(self, limit: int, *, after: tuple[str, str] = ("", "")) -> Sequence[Held]:
        """Return parts of inspections that have ended, in the order of (inspection, part), from there on."""

    def of_node(self, node: str) -> Sequence[Held]:
        """Return every part of the node that is stored here, without their content."""

    def remove_logs(self, before: float, limit: int) -> int:
        """Delete the ``logs`` of up to ``limit`` inspections that were stored before this time; how many went.

        Objects with logs of that age are discarded. It looks at all data: not for every second.
        """

    def drop(self, held: Held) -> bool:
        """Delete this part if it is still the one that was read; whether it was."""


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """A part of an inspection's data in the database; ``at`` tells this content from a later one."""

    inspection: str
    part: Part
    node: str
    at: float


ObjectState = Literal["uploading", "stored", "discarded"]


class StoredObject(msgspec.Struct, frozen=True, kw_only=True):
    """A part of an inspection's data as an object of ``backend``, under a key that is used once only.

    ``size`` is that of the object, in bytes; ``at`` is when it came into its state. ``content_size`` and
    ``content_sha256`` are those of what was packed into it; None for objects of a release that did not keep them.
    """

    key: str
    backend: str
    inspection: str
    node: str
    part: Part
    state: ObjectState = "uploading"
    size: int = 0
    at: float = 0.0
    content_size: int | None = None
    content_sha256: str | None = None


class Objects(Protocol):
    """What is, or may be, in the object stores. Whoever uploads writes so before, so nothing is forgotten there.

    ``uploading`` becomes ``stored`` or ``discarded``, ``stored`` becomes ``discarded``; a discarded
    object is deleted there, and only then forgotten here.
    """

    def add(self, objects: Iterable[StoredObject]) -> None:
        """Note that these are about to be uploaded."""

    def keep(self, one: StoredObject) -> bool:
        """Let an uploading object be stored, with its sizes and digest; False where it was discarded meanwhile."""

    def find(self, inspection: str, parts: Sequence[Part]) -> Sequence[StoredObject]:
        """Return the stored objects of these parts."""

    def of_node(self, node: str) -> Sequence[StoredObject]:
        """Return the stored objects of all the node's inspections."""

    def discard(self, inspection: str, parts: Sequence[Part]) -> None:
        """Discard the stored objects of these parts: there is newer data, or none is wanted."""

    def discard_keys(self, keys: Iterable[str]) -> None:
        """Discard these objects, whatever their state."""

    def give_up(self, before: float) -> int:
        """Discard what has been uploading since before this time; return how many these were."""

    def forget(self, keys: Iterable[str]) -> None:
        """Forget discarded objects that are deleted."""

    def list(self, state: ObjectState, limit: int, *, backend: str = "", after: str = "") -> Sequence[StoredObject]:
        """Return objects in this state (of this backend only, unless empty), by key, from there on."""


# Machines that became nodes by calling, and those that shall not.


class Discoveries(Protocol):
    """Machines that became nodes by calling; whoever makes one asks ``made`` first."""

    def made(self, period: int) -> int:
        """Return how many were made in this period, counted from 0 in each; in the next one where that has begun.

        From here to the end of the transaction nobody else can make one. ``ConflictError`` where
        somebody did at this very moment: look again, in a new transaction.
        """

    def add(self, node: str, addresses: Iterable[str], source: str = "") -> None:
        """Count one, and let these MACs mean this node where no port has them; ``source`` is who called.

        ``ConflictError`` (field ``address``) where one of them means a discovered node already.
        """

    def unclaimed(self, source: str | None = None) -> int:
        """Return how many discovered nodes (of this source) are still in ``enroll``, approved or not."""

    def of_source(self, source: str) -> Sequence[str]:
        """Return the nodes that were discovered by calls from this source."""

    def macs(self, node: str) -> Sequence[str]:
        """Return the MACs with which the node was discovered."""


class Rejections(Protocol):
    """The MACs of machines that shall not be discovered again."""

    def add(self, node: str, addresses: Iterable[str], source: str = "") -> None:
        """Note these MACs as rejected now; ``source`` is from where the machine called."""

    def find(self, addresses: Sequence[str]) -> Sequence[Rejection]:
        """Return those of these MACs that were rejected, the newest first."""

    def list(self) -> Sequence[Rejection]:
        """Return all, the newest first."""

    def remove(self, address: str) -> bool:
        """Forget this one; whether there was one."""

    def forget(self, before: float) -> None:
        """Forget what was rejected before this time."""


# What searches over the hardware look at.


class Match(msgspec.Struct, frozen=True):
    """A node that a search found; ``hardware`` is the summary of its last inventory (see ``hardware.search_index``)."""

    uuid: str
    name: str | None
    provision_state: str
    maintenance: bool
    hardware: dict[str, Any]


class SearchIndex(Protocol):
    """What searches look at: rows of each node, written with the results that they are derived from."""

    def replace(self, node: str, rows: Sequence[IndexRow], *, had: bool) -> None:
        """Store these rows instead of the node's; ``had``: whether it may have any."""

    def of(self, node: str) -> Sequence[IndexRow]:
        """Return the node's rows, by kind and position."""

    def search(self, query: expressions.Query, limit: int, *, after: str = "") -> Sequence[Match]:
        """Return nodes for which the query holds, by UUID, from there on.

        What the query means is ``hardware.expressions.matches``; every adapter agrees with it. Where it is
        ``about_hardware``, a node that has no rows never fits.
        """

    def some(self, nodes: Sequence[str], kinds: Sequence[str]) -> dict[str, list[IndexRow]]:
        """Return the rows of these kinds of each of these nodes that has any."""
