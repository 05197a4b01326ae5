"""The change of a BMC's password: where the new one is kept until it is proven, and which passwords are valid. Pure.

The new password is stored in ``driver_info`` beside the present one before it is sent to the BMC. So it is encrypted,
masked and re-encrypted in the same way. After a login with the new password, it replaces the present one. After a login
with the present password, the new one is removed. Until then, both are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from ferroscope.core.lanes import bmc_of
from ferroscope.core.model import Document, Node
from ferroscope_client.core.passwords import PasswordProgress

_SUFFIX: Final = "_password"
_PENDING: Final = "_pending_password"
# Setting one of these ports is the same as setting none.
_USUAL_PORTS: Final = (":443", ":623")

RECORD: Final = "bmc_account"
"""The key of a node's internal data with the result of its last change, as ``Record``."""


class Record(msgspec.Struct, frozen=True):
    """The result of the last change that ended: ``CHANGED`` or ``UNCHANGED``; ``at`` by the database's clock."""

    result: PasswordProgress
    at: float


def field_of(properties: Iterable[str]) -> str | None:
    """Return the driver's property that is its password; None if it has none, or several."""
    names = [name for name in properties if name.endswith(_SUFFIX)]
    return names[0] if len(names) == 1 else None


def pending_field(field: str) -> str:
    """Return where the new password is kept, for the field of the present one."""
    return field.removesuffix(_SUFFIX) + _PENDING


def pending_fields(info: Document) -> list[str]:
    """Return the fields with a new password that is not proven yet."""
    return [name for name in info if name.endswith(_PENDING)]


def user_field(field: str) -> str:
    """Return the field of the user name, for that of the password."""
    return field.removesuffix(_SUFFIX) + "_username"


def same_account(first: Node, second: Node, field: str) -> bool:
    """Whether both nodes log in as the same user, on the same port. The caller has found that they have one BMC.

    This includes nodes of several systems behind one BMC.
    """
    user = user_field(field)
    if first.driver_info.get(user) != second.driver_info.get(user) or field not in second.driver_info:
        return False
    return _port(first) == _port(second)


def _port(node: Node) -> str:
    address = bmc_of(node.driver, node.driver_info)
    if address is None:
        return ""
    place = address.bmc.rpartition("]")[2] if "]" in address.bmc else address.bmc
    port = place[place.find(":") :] if place.count(":") == 1 else ""
    return "" if port in _USUAL_PORTS else port


def record_of(internal: Mapping[str, object]) -> Record | None:
    """Return the result of the last change, None without one that can be read."""
    try:
        return msgspec.convert(internal.get(RECORD), Record)
    except msgspec.ValidationError:
        return None


def change_of(node: Node, *, queued: bool) -> PasswordProgress:
    """Return the progress of the change of the node's password; ``queued``: a request for it is on the queue."""
    if queued:
        return PasswordProgress.CHANGING
    if pending_fields(node.driver_info):
        return PasswordProgress.UNCLEAR
    record = record_of(node.internal)
    return PasswordProgress.NONE if record is None else record.result
