"""The password of an IPMI user: set without showing it to other users of the host, and proven by a new session.

ipmitool cuts a password that it asks for to 16 bytes (ipmitool/ipmitool#153, #347); a longer one is in a command that
it reads from a pipe. Some BMCs keep 16 bytes of 20, and say nothing (openbmc/phosphor-host-ipmid#149): then a session
with these 16 sets the old one again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from ferroscope.bmc import wrong
from ferroscope.bmc.ipmi.ipmitool import IpmiCommand
from ferroscope.contracts.errors import BmcError
from ferroscope.contracts.store import StopFlag
from ferroscope.core.model import Node
from ferroscope_client.core.reasons import Reason
from ferroscope_client.core.values import MASK

Ask = Callable[[Node, IpmiCommand], str]

_PASSWORD: Final = "ipmi_password"  # noqa: S105  # the name of the field
_USERNAME: Final = "ipmi_username"
_SUCCESS: Final = "Set User Password command successful"
_SHORT_BYTES: Final = 16
# What ipmitool gives a meaning in a line that it reads.
_SPECIAL_CHARACTERS: Final = frozenset("\"'\\#")
# Seconds before each login with the new password.
_PAUSE_SECONDS: Final = (0.0, 3.0)


def change(ask: Ask, node: Node, password: str, stop: StopFlag) -> None:
    """Set the password of the node's user, and log in with it; otherwise restore the old one; ``BmcError``."""
    command = _password_command(_read_user_number(ask, node), password)
    old = str(node.driver_info.get(_PASSWORD) or "")
    try:
        ask(node, command)
        for pause in _PAUSE_SECONDS:
            if pause and stop.wait(pause):
                break
            if _accepts(ask, _with_password(node, password)):
                return
        _restore(ask, node, password, old)
    except BmcError as exc:
        exc.args = (str(exc).replace(password, MASK),)
        raise


def _restore(ask: Ask, node: Node, password: str, old: str) -> None:
    """Find out what the BMC has kept, and raise the ``BmcError`` that says it."""
    cut = _with_password(node, password[:_SHORT_BYTES])
    if len(password) > _SHORT_BYTES and _accepts(ask, cut):
        ask(cut, _password_command(_read_user_number(ask, cut), old))
        if _accepts(ask, node):
            message = f"the BMC keeps only {_SHORT_BYTES} bytes of a password, and has the old one again: shorten it"
            raise BmcError(message, transient=False, reason=Reason.BMC_REFUSED)
    elif _accepts(ask, node):
        message = "the BMC has accepted the new password, and still has the old one"
        raise BmcError(message, transient=False, reason=Reason.BMC_REFUSED)
    message = "the BMC has accepted the new password, and now rejects it and the old one"
    raise BmcError(message, transient=False, reason=Reason.BMC_PASSWORD_UNCLEAR)


def _accepts(ask: Ask, node: Node) -> bool:
    try:
        ask(node, IpmiCommand("login", ("chassis", "power", "status")))
    except BmcError as exc:
        if exc.reason is Reason.BMC_CREDENTIALS:
            return False
        raise
    return True


def _with_password(node: Node, password: str) -> Node:
    return msgspec.structs.replace(node, driver_info=node.driver_info | {_PASSWORD: password})


def _read_user_number(ask: Ask, node: Node) -> int:
    """Return the number of the node's user; ``BmcError`` if it has none, or the BMC lists none of its name."""
    name = str(node.driver_info.get(_USERNAME) or "")
    if not name:
        raise wrong("ipmi_username is missing: the password of the user without a name is not changed")
    for line in ask(node, IpmiCommand("users", ("-c", "user", "list"))).splitlines():
        number, _, rest = line.partition(",")
        if rest.rsplit(",", 4)[0] == name and number.isdigit():
            return int(number)
    message = "the BMC lists no user with the name of ipmi_username"
    raise BmcError(message, transient=False, reason=Reason.BMC_REFUSED)


def _password_command(user: int, password: str) -> IpmiCommand:
    """Return the command; it is sent once, because a second one would need the new password."""
    if len(password) <= _SHORT_BYTES:
        words = ("user", "set", "password", str(user))
        return IpmiCommand("password", words, success=_SUCCESS, once=True, typed=(password, password))
    if _SPECIAL_CHARACTERS & set(password) or not password.isprintable() or " " in password:
        forbidden = " ".join(sorted(_SPECIAL_CHARACTERS))
        raise wrong(
            f"a password of more than {_SHORT_BYTES} characters must not contain {forbidden} or spaces: "
            "ipmitool would change it"
        )
    script = f'user set password {user} "{password}" 20'
    return IpmiCommand("password", success=_SUCCESS, once=True, script=script)
