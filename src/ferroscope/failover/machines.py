"""Which machine a Kubernetes node runs on: by what it and the inventory report, or by an annotation; never by a guess.

All that is known must agree. Several candidates are none: to power off a wrong machine would break a healthy node, and
prove nothing about the failed one. Pure.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator

import msgspec

from ferroscope.failover.cluster import MACHINE, SERIAL, KubeNode
from ferroscope.hardware.machine_identity import MachineIdentity, identify, same_uuid


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """What the controller knows about a machine; ``active``: an inspection of it is in progress."""

    uuid: str
    name: str | None = None
    instance_uuid: str | None = None
    system_uuid: str | None = None
    serial: str | None = None
    maintenance: bool = False
    active: bool = False
    keeps_power: bool = False

    @property
    def title(self) -> str:
        return self.name or self.uuid


class Match(msgspec.Struct, frozen=True):
    """The machine, or why there is none: a code, and a message."""

    machine: Machine | None = None
    reason: str = ""
    message: str = ""


def find(node: KubeNode, machines: Iterable[Machine]) -> Match:
    """Return the one machine that everything known about the node says it is."""
    known, named = tuple(machines), node.annotations.get(MACHINE, "")
    found: dict[str, set[str]] = {}
    for source, matches in _sources(node):
        candidates = {one.uuid for one in known if matches(one)}
        # An annotation that names no machine is a mistake; an unknown system UUID only means: not inspected yet.
        if candidates or source == MACHINE:
            found[source] = candidates
    if named and not found[MACHINE]:
        return Match(None, "machine-unknown", f"its annotation {MACHINE} names {named!r}, which is not a known machine")
    if not found:
        return Match(
            None,
            "machine-unknown",
            "no machine has its system UUID or provider ID; inspect its machine, or set the "
            f"annotation {MACHINE} to the machine's name or UUID",
        )
    common = set.intersection(*found.values())
    if len(common) == 1:
        (ident,) = common
        return Match(next(one for one in known if one.uuid == ident))
    if not common:
        return Match(None, "machine-contradicts", f"{' and '.join(sorted(found))} belong to different machines")
    return Match(
        None, "machine-ambiguous", f"{len(common)} machines have its {' and '.join(sorted(found))}; a guess is not made"
    )


def _sources(node: KubeNode) -> Iterator[tuple[str, Callable[[Machine], bool]]]:
    """Yield what the node says about its machine, and how a machine matches that; placeholders say nothing."""
    if named := node.annotations.get(MACHINE, ""):
        yield MACHINE, lambda one: named in (one.uuid, one.name)
    reported = identify({"serial_number": node.annotations.get(SERIAL)}, node.status.node_info.system_uuid or None, ())
    system_uuid, serial = reported.uuid, reported.serial
    if system_uuid is not None:
        yield "system UUID", lambda one: one.system_uuid is not None and same_uuid(one.system_uuid, system_uuid)
    if serial is not None:
        yield "serial number", lambda one: one.serial == serial
    if ident := _in_provider_id(node.spec.provider_id):
        yield "provider ID", lambda one: ident in (one.uuid, one.instance_uuid)


def _in_provider_id(provider_id: str) -> str | None:
    """Return the UUID at the end of a provider ID, such as ``ferroscope://UUID``."""
    try:
        return str(uuid.UUID(provider_id.rpartition("/")[2]))
    except ValueError:
        return None


def described(identity: MachineIdentity | None) -> dict[str, str | None]:
    """Return the fields of a ``Machine`` that its last inspection reported."""
    return {} if identity is None else {"system_uuid": identity.uuid, "serial": identity.serial}
