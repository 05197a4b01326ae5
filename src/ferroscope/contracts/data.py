"""Inspection data in the database and in object stores, discovered machines, and the search index."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, Literal, Protocol, TypeVar

import msgspec

from ferroscope.core.lookup import Rejection
from ferroscope.hardware import expressions
from ferroscope.hardware.search_index import IndexRow

T_co = TypeVar("T_co", covariant=True)


class Later(Generic[T_co]):
    """``get`` returns the result, and fetches it if necessary."""

    def __init__(self, get: Callable[[], T_co]) -> None:
        self.get = get


Part = Literal["inventory", "unprocessed", "plugin_data", "out_of_band", "logs"]


class InspectionData(Protocol):
    """The parts of an inspection's data, as JSON bytes; each inspection has at most one of each.

    ``inventory`` is never changed; ``unprocessed`` is the rest of the ramdisk's callback; ``plugin_data`` is that after
    the hooks; ``out_of_band`` is the BMC's inventory. ``logs`` is the ramdisk's log archive as received: tar, not JSON.
    """

    def save(self, inspection: str, node: str, parts: dict[Part, bytes]) -> None:
        """Store or replace these parts."""

    def load(self, inspection: str, parts: Sequence[Part]) -> dict[Part, bytes]:
        """Return the parts that are stored in the database; for other parts see ``Objects``."""

    def load_later(self, inspection: str, parts: Sequence[Part]) -> Later[dict[Part, bytes]]:
        """Like ``load``, but read later; see ``Later``."""

    def held(self, limit: int, *, after: tuple[str, str] = ("", "")) -> Sequence[Held]:
        """Return parts of ended inspections after ``after``, ordered by (inspection, part)."""

    def of_node(self, node: str) -> Sequence[Held]:
        """Return all parts of the node that are stored in the database, without content."""

    def remove_logs(self, before: float, limit: int) -> int:
        """Delete the ``logs`` of up to ``limit`` inspections that were stored before this time; return the number.

        Objects with logs of that age are discarded. It scans all data, so do not call it every second.
        """

    def drop(self, held: Held) -> bool:
        """Delete this part if it has not been replaced since it was read; return whether it was deleted."""


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """A part of an inspection's data in the database; ``at`` distinguishes its content from later ones."""

    inspection: str
    part: Part
    node: str
    at: float


ObjectState = Literal["uploading", "stored", "discarded"]


class StoredObject(msgspec.Struct, frozen=True, kw_only=True):
    """A part of an inspection's data as an object in ``backend``, under a key that is used only once.

    ``size`` is the object's size in bytes; ``at`` is when it entered its state. ``content_size`` and ``content_sha256``
    are those of the unpacked content; None for objects of a release that did not record them.
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
    """The objects that are, or may be, in the object stores. They are recorded before the upload, so none is orphaned.

    ``uploading`` becomes ``stored`` or ``discarded``, ``stored`` becomes ``discarded``; a discarded object is first
    deleted from the object store, then forgotten here.
    """

    def add(self, objects: Iterable[StoredObject]) -> None:
        """Record objects that are about to be uploaded."""

    def keep(self, one: StoredObject) -> bool:
        """Mark an uploading object as stored, with its sizes and digest; False if it was discarded meanwhile."""

    def find(self, inspection: str, parts: Sequence[Part]) -> Sequence[StoredObject]:
        """Return the stored objects of these parts."""

    def of_node(self, node: str) -> Sequence[StoredObject]:
        """Return the stored objects of all the node's inspections."""

    def discard(self, inspection: str, parts: Sequence[Part]) -> None:
        """Discard the stored objects of these parts, which are replaced or no longer needed."""

    def discard_keys(self, keys: Iterable[str]) -> None:
        """Discard these objects, whatever their state."""

    def give_up(self, before: float) -> int:
        """Discard objects that have been uploading since before this time; return their number."""

    def forget(self, keys: Iterable[str]) -> None:
        """Forget discarded objects that have been deleted."""

    def list(self, state: ObjectState, limit: int, *, backend: str = "", after: str = "") -> Sequence[StoredObject]:
        """Return objects in this state after the key ``after``, by key; of one ``backend``, or of all if empty."""


# Discovered machines: those that became nodes, and those that were rejected.


class Discoveries(Protocol):
    """Machines that were enrolled as nodes when they called. Call ``created_in`` before creating such a node."""

    def created_in(self, period: int) -> int:
        """Return how many nodes were created in this period, or in the next one if that has already begun.

        It locks the counter, so no other transaction can create one before the end of this one. ``ConflictError`` if
        another one has just created the counter: retry in a new transaction.
        """

    def add(self, node: str, addresses: Iterable[str], source: str = "") -> None:
        """Count the node, and identify it by these MACs if no port has them; ``source`` is the caller's address.

        ``ConflictError`` (field ``address``) if one of them already identifies a discovered node.
        """

    def unclaimed(self, source: str | None = None) -> int:
        """Return how many discovered nodes (of this source) are still in ``enroll``, approved or not."""

    def of_source(self, source: str) -> Sequence[str]:
        """Return the nodes that were discovered by calls from this source."""

    def macs(self, node: str) -> Sequence[str]:
        """Return the MACs with which the node was discovered."""


class Rejections(Protocol):
    """The MACs of machines that must not be discovered again."""

    def add(self, node: str, addresses: Iterable[str], source: str = "") -> None:
        """Record these MACs as rejected now; ``source`` is the address from which the machine called."""

    def find(self, addresses: Sequence[str]) -> Sequence[Rejection]:
        """Return the rejections of these MACs, newest first."""

    def list(self) -> Sequence[Rejection]:
        """Return all rejections, newest first."""

    def remove(self, address: str) -> bool:
        """Remove the rejection of this MAC; return whether there was one."""

    def forget(self, before: float) -> None:
        """Remove the rejections from before this time."""


# The search index of the hardware.


class Match(msgspec.Struct, frozen=True):
    """A search result; ``hardware`` is the summary of the node's last inventory (see ``hardware.search_index``)."""

    uuid: str
    name: str | None
    provision_state: str
    maintenance: bool
    hardware: dict[str, Any]


class SharedMac(msgspec.Struct, frozen=True):
    """A MAC that several machines reported in their last inspections: of how many NICs, and two of their nodes."""

    address: str
    nics: int
    nodes: tuple[str, str]


class SearchIndex(Protocol):
    """The index that searches use: rows for each node, written with the results that they are derived from."""

    def replace(self, node: str, rows: Sequence[IndexRow], *, had: bool) -> None:
        """Replace the node's rows; ``had``: whether it may already have any."""

    def of(self, node: str) -> Sequence[IndexRow]:
        """Return the node's rows, by kind and position."""

    def search(
        self, query: expressions.Query, limit: int, *, after: str = "", project: str | None = None
    ) -> Sequence[Match]:
        """Return the nodes after ``after`` that match the query, by UUID; ``project`` as in ``contracts.store.Query``.

        ``hardware.expressions.matches`` defines the meaning of a query for every adapter. If a query is
        ``about_hardware``, nodes without rows do not match.
        """

    def with_serials(self, serials: Sequence[str]) -> dict[str, list[str]]:
        """Return the nodes by the serial number of their machines, for those of these that any has; lower case."""

    def shared_macs(self, limit: int) -> Sequence[SharedMac]:
        """Return MACs that several nodes' machines reported, those of most NICs first."""

    def some(self, nodes: Sequence[str], kinds: Sequence[str]) -> dict[str, list[IndexRow]]:
        """Return the rows of these kinds, for each of these nodes that has any."""
