"""Inspection data in the database and in object stores, discovered machines, and the search index."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from typing import Final, Generic, Literal, NewType, TypeVar

import msgspec

from ferroscope.core.node import Document

T_co = TypeVar("T_co", covariant=True)


class Later(msgspec.Struct, Generic[T_co], frozen=True):
    """``get`` returns the result, and fetches it if necessary."""

    get: Callable[[], T_co]


Part = Literal["inventory", "unprocessed", "plugin_data", "out_of_band", "logs"]
Packed = NewType("Packed", bytes)

# Level 1 compresses an inventory to a tenth of its size in a third of a millisecond; higher levels gain little.
_ZLIB_LEVEL: Final = 1


def packed(parts: Mapping[Part, bytes]) -> dict[Part, Packed]:
    """Return the parts as the database stores them: compressed by zlib.

    Call it before the transaction. In it, others would wait meanwhile: for the locks that it holds, and on SQLite for
    the only writer.
    """
    return {part: Packed(zlib.compress(content, _ZLIB_LEVEL)) for part, content in parts.items()}


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


class SearchMatch(msgspec.Struct, frozen=True):
    """A search result; ``hardware`` is the summary of the node's last inventory (see ``hardware.search_index``)."""

    uuid: str
    name: str | None
    provision_state: str
    maintenance: bool
    hardware: Document


class CableEnd(msgspec.Struct, frozen=True, gc=False):
    """A NIC and the port of a switch to which it is connected; ``machine``: the node's name, or its UUID.

    Texts of the machine, which are in lower case, are empty if they are not known.
    """

    switch: str
    port: str
    node: str
    machine: str
    nic: str
    mac: str
    vlan: int | None = None
    mtu: int | None = None


class SharedMac(msgspec.Struct, frozen=True):
    """A MAC that several machines reported in their last inspections: of how many NICs, and two of their nodes."""

    address: str
    nics: int
    nodes: tuple[str, str]
