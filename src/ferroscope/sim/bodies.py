"""The bodies that the machines call back with: their inventories, spoiled as their outcomes have it.

Bodies are encoded once and kept, the most recent ones, because a fleet boots the same machines again
and again beside the service that is measured. Only the enormous one is made anew each time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final

import msgspec

from ferroscope.domain.model import Document
from ferroscope.sim.inventory import MAX_INDEX, generate, pxe_mac
from ferroscope.sim.outcomes import Body
from ferroscope.sim.roster import Member
from ferroscope.sim.settings import FleetSettings
from ferroscope.sim.template import Template

KEPT: Final = 2048
_HUGE: Final = 17 * 1024 * 1024
_DEPTH: Final = 1000
# The last byte of a machine's MACs is the NIC's number; the one that boots has the first.
_BOOTED: Final = pxe_mac(0)[-3:]
RAMDISK_ERROR: Final = "The following errors were encountered:\n* collector default failed: no disks were found"


class Bodies:
    """The bodies of one fleet. Raises as ``Template`` does where the inventory file is no good."""

    def __init__(self, settings: FleetSettings) -> None:
        self._size = settings.inventory_size
        self._template = Template(settings.inventory_file) if settings.inventory_file else None
        self._kept = lru_cache(maxsize=KEPT)(self._make)

    def of(self, member: Member) -> tuple[bytes, ...]:
        """Return what ``member`` posts at once after a boot; nothing where it does not call back."""
        outcome = member.outcome
        if not outcome.calls_back:
            return ()
        body = _huge(self._plain(member.number)) if outcome.body == "huge" else self._kept(member.number, outcome.body)
        if outcome.conflicting:
            return body, _other(body)
        return (body,) * outcome.copies

    def prepare(self, members: tuple[Member, ...]) -> None:
        """Encode beforehand what can be kept."""
        for member in members[:KEPT]:
            if member.outcome.body != "huge":
                self.of(member)

    def _make(self, number: int, kind: Body) -> bytes:
        if kind == "unknown-macs":
            return self._plain(MAX_INDEX - number)
        return _SPOIL[kind](self._plain(number))

    def _plain(self, number: int) -> bytes:
        if self._template is not None:
            return self._template.body(number)
        return generate(number, size=self._size)


def _edited(body: bytes, edit: Callable[[Document], object]) -> bytes:
    document: Document = msgspec.json.decode(body)
    edit(document)
    return msgspec.json.encode(document)


def _spoil_mac(document: Document) -> None:
    """Spoil the MAC of an interface that did not boot, or of a new one where there is no other."""
    interfaces = document["inventory"]["interfaces"]
    for interface in interfaces:
        if not str(interface["mac_address"]).endswith(_BOOTED):
            interface["mac_address"] = "no-mac"
            return
    interfaces.append({"name": "ib0", "mac_address": "no-mac", "has_carrier": True})


def _other(body: bytes) -> bytes:
    """Return a body of the same machine that differs, as after somebody added memory."""
    return _edited(body, lambda document: document["inventory"].update(memory={"physical_mb": 1024, "total": 2**30}))


def _huge(body: bytes) -> bytes:
    return body[:-1] + b',"padding":"%s"}' % (b"x" * _HUGE)


_SPOIL: Final[dict[Body, Callable[[bytes], bytes]]] = {
    "plain": lambda body: body,
    "error": lambda body: _edited(body, lambda document: document.update(error=RAMDISK_ERROR)),
    "no-nics": lambda body: _edited(body, lambda document: document["inventory"].update(interfaces=[])),
    "no-memory": lambda body: _edited(body, lambda document: document["inventory"].pop("memory", None)),
    "no-arch": lambda body: _edited(body, lambda document: document["inventory"]["cpu"].pop("architecture", None)),
    "bad-mac": lambda body: _edited(body, _spoil_mac),
    "bad-json": lambda body: body[: len(body) // 2],
    "deep": lambda body: body[:-1] + b',"nested":' + b"[" * _DEPTH + b"]" * _DEPTH + b"}",
}
