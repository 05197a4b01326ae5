"""What a Machine object means for its node: which fields to change, what to tell, and the status. Pure.

Each field has three values: what the object wants, what the node has, and on what both agreed last (``applied`` in the
status). If only the object has changed, the node follows. If the node was changed elsewhere, nobody is overwritten: a
condition says so, until both are equal again or an operator orders to apply the object.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import msgspec

from ferroscope.core import values
from ferroscope.core.model import Node
from ferroscope.core.secrets import is_place, is_reference
from ferroscope.core.states import ACTIVE, State
from ferroscope.machines.objects import Machine, Status

Document = dict[str, Any]

MACS: Final = "/macs"
_MAC: Final = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_OPTION: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")
_LONGEST: Final = 1024
_WITHHELD: Final = "the message is withheld: it may contain credentials"


class SpecError(Exception):
    """The object cannot be a node; ``reason`` is for a condition."""

    def __init__(self, message: str, reason: str = "InvalidSpec") -> None:
        super().__init__(message)
        self.reason = reason


class Login(msgspec.Struct, frozen=True):
    """The credentials of a BMC; ``version`` identifies the Secret and its content without revealing it."""

    username: str
    password: str
    version: str

    def __repr__(self) -> str:
        return f"Login({self.version})"

    def hidden(self, text: str) -> str:
        """Return the text without these credentials."""
        for one in (self.password, self.username):
            if one and one in text:
                text = _WITHHELD if values.is_too_short(one) else text.replace(one, values.MASK)
        return text


class Plan(msgspec.Struct, frozen=True):
    """What to change in a node. ``fields``: new values by path, None: remove. ``applied`` holds if that was done.

    ``elsewhere``: fields that were changed in the node only; ``both``: in the node and in the object.
    """

    fields: dict[str, Any]
    add_macs: list[str]
    remove_macs: list[str]
    applied: dict[str, str]
    elsewhere: list[str]
    both: list[str]
    login: bool = False


def check(machine: Machine, drivers: Collection[str]) -> None:
    """Raise ``SpecError`` if the object cannot be a node, for reasons that the API server cannot know."""
    spec = machine.spec
    if spec.bmc.driver not in drivers:
        raise SpecError(f"driver {spec.bmc.driver!r} is not enabled; enabled: {', '.join(sorted(drivers))}")
    for name, value in spec.bmc.options.items():
        if not _OPTION.fullmatch(name):
            raise SpecError(f"bmc.options has {name[:80]!r}; expected a key of driver_info such as redfish_system_id")
        if values.is_secret(name):
            raise SpecError(f"bmc.options.{name} is a secret: put it into the Secret of bmc.credentialsSecret")
        if is_reference(value):
            raise SpecError(f"bmc.options.{name} refers to a secret of the service, which is not allowed here")
    for mac in spec.macs:
        if not _MAC.fullmatch(mac.lower()):
            raise SpecError(f"macs has {mac!r}; expected a MAC address such as 52:54:00:12:34:56")
    if spec.uuid and not _UUID.fullmatch(machine.node):
        raise SpecError(f"uuid is {spec.uuid!r}; expected a UUID")
    before = machine.known().node_uuid
    if before and before != machine.node:
        raise SpecError(f"uuid cannot be changed: this Machine is node {before}; set uuid to it, or remove uuid")


def login_of(data: Mapping[str, bytes], name: str, version: str) -> Login:
    """Return the credentials in the data of a Secret; ``SpecError``. No message has a value."""
    found = {}
    for key in ("username", "password"):
        if key not in data:
            raise SpecError(f"Secret {name} has no key {key}", "SecretInvalid")
        try:
            found[key] = data[key].decode().rstrip("\r\n")
        except UnicodeDecodeError:
            raise SpecError(f"{key} in Secret {name} is not text in UTF-8", "SecretInvalid") from None
        if is_reference(found[key]):
            raise SpecError(f"{key} in Secret {name} refers to a secret of the service, which is not allowed here",
                            "SecretInvalid")  # fmt: skip
    return Login(found["username"], found["password"], f"{name}@{version}")


def wanted(machine: Machine, prefix: str) -> dict[str, Any]:
    """Return what the object says of its node, by path; ``prefix`` is that of the driver's keys in ``driver_info``."""
    spec = machine.spec
    found: dict[str, Any] = {"/name": machine.node_name, "/driver": spec.bmc.driver}
    found |= {f"/driver_info/{name}": value for name, value in spec.bmc.options.items()}
    if spec.bmc.address:
        found[f"/driver_info/{prefix}_address"] = spec.bmc.address
    if spec.description is not None:
        found["/description"] = spec.description
    if spec.resource_class is not None:
        found["/resource_class"] = spec.resource_class
    if spec.labels is not None:
        found["/labels"] = spec.labels
    return found


def credentials(login: Login | None, prefix: str) -> dict[str, str]:
    """Return the keys of ``driver_info`` for these credentials."""
    if login is None:
        return {}
    return {f"{prefix}_username": login.username, f"{prefix}_password": login.password}


def macs_of(machine: Machine) -> list[str]:
    return sorted({mac.lower() for mac in machine.spec.macs})


def creation(machine: Machine, prefix: str, login: Login | None) -> Document:
    """Return the body that creates the node."""
    body: Document = {"uuid": machine.node, "driver_info": dict(credentials(login, prefix))}
    for path, value in wanted(machine, prefix).items():
        where, _, key = path[1:].partition("/")
        if key:
            body.setdefault(where, {})[key] = value
        else:
            body[where] = value
    return body


def plan(
    known: Status,
    machine: Machine,
    node: Node,
    macs: Collection[str],
    prefix: str,
    login: Login | None,
    *,
    force: bool,
) -> Plan:
    """Compare the object with its node, which has the ports ``macs``; ``force``: the object wins."""
    base = known.applied or {}
    want = wanted(machine, prefix)
    fields: dict[str, Any] = {}
    applied: dict[str, str] = {}
    elsewhere: list[str] = []
    both: list[str] = []
    for path in sorted(want.keys() | base.keys() - {MACS}):
        wish, has, agreed = as_text(want.get(path)), as_text(_value(node, path)), base.get(path, "")
        if wish == has:
            pass
        elif force or agreed == has:
            fields[path] = want.get(path)
        else:
            (elsewhere if agreed == wish else both).append(path[1:])
            if agreed:
                applied[path] = agreed
            continue
        if path in want and wish:
            applied[path] = wish
    new, old, present = set(macs_of(machine)), set(base.get(MACS, "").split()), {mac.lower() for mac in macs}
    gone = (new & old) - present
    if gone and not force:
        elsewhere.append("macs")
    if new:
        applied[MACS] = " ".join(sorted(new))
    moved = any(path == "/driver" or is_place(path) for path in fields)
    return Plan(
        fields=fields,
        add_macs=sorted(new - present if force else new - present - gone),
        remove_macs=sorted((old - new) & present),
        applied=applied,
        elsewhere=elsewhere,
        both=both,
        login=login is not None and (moved or known.credentials != login.version),
    )


def patch(planned: Plan, node: Node, prefix: str, login: Login | None) -> list[Document]:
    """Return the JSON patch of the node; secrets go with a change of the BMC's address."""
    fields = dict(planned.fields)
    if planned.login:
        fields |= {f"/driver_info/{name}": value for name, value in credentials(login, prefix).items()}
    found: list[Document] = []
    for path, value in fields.items():
        if value is not None:
            found.append({"op": "add", "path": path, "value": value})
        elif _value(node, path) is not None:
            found.append({"op": "remove", "path": path})
    return found


def same_bmc(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two nodes' ``driver_info`` mean the same BMC: the place is equal, secrets apart."""
    names = {name for name in (*one, *other) if not values.is_secret(name) and not name.endswith("_username")}
    return all(as_text(one.get(name)) == as_text(other.get(name)) for name in names)


def as_text(value: Any) -> str:
    """Return a value as it is compared and kept in the status: what is absent, empty or false is ""."""
    if value in (None, "", False, {}, []):
        return ""
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False)


def _value(node: Node, path: str) -> Any:
    where, _, key = path[1:].partition("/")
    if not key:
        return getattr(node, where) if hasattr(node, where) else node.attributes.get(where)
    return (getattr(node, where) or {}).get(key)


# The status.


class Fact(msgspec.Struct, frozen=True):
    """A condition without its times."""

    type: str
    status: str
    reason: str
    message: str = ""

    @property
    def is_bad(self) -> bool:
        return self.status == "False" and self.reason not in _EXPECTED


_EXPECTED: Final = frozenset({"NeverInspected", "InProgress"})


def fact(kind: str, ok: bool | None, reason: str, message: str = "") -> Fact:
    return Fact(kind, "Unknown" if ok is None else str(ok), reason, message[:_LONGEST])


def in_step(planned: Plan) -> Fact:
    """Return the condition InStep."""
    if planned.both:
        names = ", ".join(planned.both)
        return fact("InStep", False, "ChangedOnBothSides",
                    f"object and node have different values of {names}; make them equal, or apply the object: "
                    f"kubectl annotate machine NAME ferroscope.io/apply=")  # fmt: skip
    if planned.elsewhere:
        names = ", ".join(planned.elsewhere)
        return fact("InStep", False, "ChangedElsewhere",
                    f"the node was changed elsewhere: {names}; change the object, or apply it: "
                    f"kubectl annotate machine NAME ferroscope.io/apply=")  # fmt: skip
    return fact("InStep", True, "InStep")


def inspected(node: Node, reason: str) -> Fact:
    """Return the condition Inspected; ``reason`` is the code of the last failure."""
    if node.state in ACTIVE:
        return fact("Inspected", False, "InProgress", f"the inspection is {node.state}")
    if node.state is State.ERROR:
        return fact("Inspected", False, camel(reason) or "Failed", node.last_error or "")
    if node.state is State.FINISHED:
        return fact("Inspected", True, "Finished")
    return fact("Inspected", False, "NeverInspected")


def camel(code: str) -> str:
    """Return a reason code as conditions have it: ``bmc-login`` becomes ``BmcLogin``."""
    return "".join(part[:1].upper() + part[1:] for part in re.split(r"[^A-Za-z0-9]+", code))


def of_node(node: Node, reason: str) -> Document:
    """Return the part of the status that shows the node."""
    found = {
        "nodeUUID": node.uuid,
        "state": str(node.provision_state),
        "power": node.power_state,
        "maintenance": node.maintenance or None,
        "reason": reason or None,
        "lastError": (node.last_error or "")[:_LONGEST] or None,
        "inspectedAt": time_text(node.inspection_finished_at),
        "hardware": hardware(node.hardware) or None,
    }
    return {name: value for name, value in found.items() if value is not None}


def hardware(summary: Mapping[str, Any]) -> Document:
    """Return the summary of the inventory: texts as they are, sizes also for people."""
    texts = {"vendor": "vendor", "model": "product", "serial": "serial", "firmware": "firmware", "cpu": "cpu",
             "architecture": "arch"}  # fmt: skip
    numbers = {"cpus": "cpus", "disks": "disks", "nics": "nics", "dimms": "dimms", "gpus": "gpus"}
    found: Document = {name: str(summary[key]) for name, key in texts.items() if summary.get(key)}
    found |= {name: int(summary[key]) for name, key in numbers.items() if summary.get(key)}
    if memory := summary.get("memory"):
        found["memory"] = f"{int(memory) // 2**20}Mi"
    if storage := summary.get("storage"):
        found["storage"] = f"{int(storage) // 10**9}G"
    return found


def conditions(before: Iterable[Mapping[str, Any]], facts: Iterable[Fact], generation: int, now: str) -> list[Document]:
    """Return the conditions; the time of a transition is that of the last change of the status."""
    known = {str(one.get("type")): one for one in before}
    found = []
    for one in facts:
        old = known.get(one.type, {})
        since = old.get("lastTransitionTime") if old.get("status") == one.status else None
        found.append({
            "type": one.type, "status": one.status, "reason": one.reason,
            "message": one.message or one.reason,  # Kubernetes 1.20 turns an empty text in a JSON patch into null
            "observedGeneration": generation, "lastTransitionTime": since or now,
        })  # fmt: skip
    return found


def news(before: Iterable[Mapping[str, Any]], facts: Iterable[Fact]) -> list[Fact]:
    """Return the conditions that Events tell of: those that differ from before, unless that was to be expected."""
    known = {str(one.get("type")): (one.get("status"), one.get("reason")) for one in before}
    changed = [one for one in facts if known.get(one.type) != (one.status, one.reason)]
    return [
        one for one in changed if one.is_bad or (one.status == "True" and (one.type != "InStep" or one.type in known))
    ]


def time_text(seconds: float | None) -> str | None:
    """Return a time in the format of Kubernetes."""
    if seconds is None:
        return None
    return datetime.datetime.fromtimestamp(int(seconds), datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
