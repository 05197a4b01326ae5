"""What is wrong with a node, and the commands that help: the same on its page and in ``ferroscope explain``. Pure.

The commands are complete and can be pasted. A node is the API's representation of it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any, Final

from ferroscope_client.core.database_fault import DATABASE_CODES
from ferroscope_client.core.explanations import EXPLANATIONS, INSPECT, TRY
from ferroscope_client.core.finding import Finding
from ferroscope_client.core.reasons import Reason
from ferroscope_client.core.states import BUSY, UNDER_WAY, Provision
from ferroscope_client.core.values import many

FIELDS: Final = (
    "uuid", "name", "driver", "driver_info", "provision_state", "provision_updated_at", "last_error", "maintenance",
    "maintenance_reason", "inbox", "inspection_started_at", "inspection_finished_at",
)  # fmt: skip
"""The fields of a node that this needs."""
_CODE: Final = re.compile(
    r" ?\(([a-z]+(?:-[a-z]+)+|timeout|aborted|restarted|imported|interrupted|throttled|internal)\)"
)
# Placeholders: a command with one cannot be pasted.
_BLANK: Final = re.compile(r"\b(?:PROPERTY=VALUE|FILE|URL|PATH|RULE|MAC|NAME|DRIVER)\b")
# The reason comes before what was tried at which node: a list may cut the text, and shows the name anyway.
_TRIED: Final = re.compile(
    r"(?P<tried>[a-z ]{3,60}) of \S{1,255} failed(?: \((?P<where>[^()]{1,255})\))?: (?P<why>.+)", re.DOTALL
)
_ADDRESS: Final = "_address"
# No driver accepts it as an address, so a pasted command without a correction changes nothing.
_NEW_ADDRESS: Final = "<new address>"
_SYSTEM_PATH: Final = "<path of the system>"
_ADVISED_COMMAND: Final = re.compile(r": (ferroscope [a-z -]+)\Z")
# Failures of a machine that booted, and may have called as an unknown machine.
_SILENT: Final = frozenset({Reason.TIMEOUT, Reason.RAMDISK_SILENT, Reason.CALLBACK_REFUSED})
_OF_ADDRESS: Final = frozenset({
    Reason.BMC_NAME_UNKNOWN, Reason.BMC_CONNECTION_REFUSED, Reason.BMC_NOT_REDFISH, Reason.BMC_CERTIFICATE_HOST,
    Reason.BMC_OTHER_MACHINE, Reason.BMC_NOT_ALLOWED, Reason.BMC_UNCONFIRMED,
})  # fmt: skip
_CA_FILE: Final = "bmc-ca.pem"


def reason_of(error: str | None) -> Reason | None:
    """Return the reason whose code a last error has in parentheses."""
    codes = [code for code in _CODE.findall(error or "") if code in Reason.__members__.values()]
    return Reason(codes[-1]) if codes else None


def cause_of(error: str | None) -> str:
    """Return a last error without its code and hint, which lists and cards show separately; the cause comes first."""
    reason, text = reason_of(error), error or ""
    if reason is not None:
        message, code, _ = text.rpartition(f" ({reason}).")
        text = message if code else text.removesuffix(EXPLANATIONS[reason].hint).rstrip()
    match = _TRIED.fullmatch(text)
    if match is None:
        return text
    return f"{match['why']} ({'; '.join(filter(None, (match['tried'], match['where'])))})"


def may_have_called(node: Mapping[str, Any]) -> bool:
    """Whether an unknown machine that called since the inspection began may be this node's."""
    state, reason = node["provision_state"], reason_of(node["last_error"])
    return state == Provision.INSPECT_WAIT or (state == Provision.INSPECT_FAILED and reason in _SILENT)


def hint(node: Mapping[str, Any], called: str = "", obstacle: Finding | None = None) -> str:
    """Return what to do; ``called``: how many unknown machines called since the node began to wait.

    ``obstacle``: what keeps the service from continuing with the node; see ``problems.find_obstacle``.
    """
    if obstacle is not None:
        waits = "It is waiting: " if node["provision_state"] in BUSY else ""
        return f"{waits}{obstacle.summary}. {obstacle.advice[:1].upper()}{obstacle.advice[1:]}."
    reason = reason_of(node["last_error"])
    return EXPLANATIONS[reason].hint if reason else _of_no_reason(node, called)


def _of_no_reason(node: Mapping[str, Any], called: str) -> str:
    if called:
        return f"Meanwhile {called} called. One may be this node's machine, with other MAC addresses."
    state = node["provision_state"]
    if node["inbox"]:
        return "It was discovered and is in the inbox. Approve or reject it."
    if state == Provision.INSPECT_WAIT:
        return "It is waiting for its ramdisk to call back."
    if state in BUSY:
        return "It is in progress."
    if state == Provision.ENROLL:
        return "It is enrolled. Its BMC has not been verified yet."
    return "No problem is known."


def commands(
    node: Mapping[str, Any],
    callers: int = 0,
    obstacle: Finding | None = None,
    refused: Sequence[Mapping[str, Any]] = (),
) -> list[str]:
    """Return the commands that help, except those that only the operator can complete.

    ``refused``: the ``callers`` that were refused.
    """
    reason = reason_of(node["last_error"])
    of_state = list(_of_state(node))
    if callers == 1 and refused and refused[0]["macs"]:
        of_state.insert(0, f"ferroscope node set {_label(node)} --add-port {refused[0]['macs'][0]}")
    elif callers:
        of_state.insert(0, "ferroscope node inbox")
    if obstacle is not None:
        advised = _ADVISED_COMMAND.search(obstacle.advice)
        first = [*(advised.groups() if advised else ()), "ferroscope status"]
        if obstacle.code in DATABASE_CODES.values():
            return first  # the others write
        of_state = [*first, *of_state]
    of_reason = list(_of_reason(node, reason) if reason else ())
    if reason and node["provision_state"] == Provision.ENROLL and not node["inbox"]:
        # Correct what was wrong before trying again, and try once: a BMC locks accounts.
        tries = {template.replace("NODE", _label(node)) for template in (TRY, INSPECT)}
        before = list(takewhile(lambda command: command not in tries, of_reason))
        after = [command for command in of_reason if command not in tries]
        return list(dict.fromkeys([*before, *of_state, *after]))
    return list(dict.fromkeys([*of_state, *of_reason]))


def _label(node: Mapping[str, Any]) -> str:
    return shlex.quote(str(node["name"] or node["uuid"]))


def _of_state(node: Mapping[str, Any]) -> Iterator[str]:
    name, state = _label(node), node["provision_state"]
    if node["inbox"]:
        yield from ("ferroscope node inbox", f"ferroscope node approve {name}", f"ferroscope node reject {name}")
    elif state in BUSY:
        yield f"ferroscope node timeline {name} --watch"
        if state in UNDER_WAY:
            yield f"ferroscope node abort {name}"
    elif state == Provision.ENROLL:
        yield f"ferroscope node manage {name} --wait"
    elif not node["last_error"]:
        yield f"ferroscope inspect {name} --watch"


def _of_reason(node: Mapping[str, Any], reason: Reason) -> Iterator[str]:
    for template in EXPLANATIONS[reason].commands:
        command = template.replace("driver properties DRIVER", f"driver properties {shlex.quote(node['driver'])}")
        if (field := _property(node, reason)) is not None:
            command = re.sub(r"-d \S+", f"-d {field}".replace("\\", r"\\"), command)
        elif _BLANK.search(command):
            continue
        yield re.sub(r"\bNODE\b", lambda _: _label(node), command)


def _property(node: Mapping[str, Any], reason: Reason) -> str | None:
    """Return the field to correct: the password, read from standard input, the address, or the system.

    With another address or CA, the operator has to enter the password again: a stored one is not sent to another BMC.
    """
    info = node["driver_info"] if isinstance(node["driver_info"], dict) else {}
    if reason in (Reason.BMC_CREDENTIALS, Reason.DECRYPTION_FAILED):
        names = [name for name in info if name.endswith("_password")]
        return f"{names[0] if names else node['driver'] + '_password'}=@-"
    again = "".join(f" -d {name}=@-" for name in info if name.endswith("_password"))
    if reason in (Reason.BMC_CERTIFICATE, Reason.BMC_CA_UNUSABLE):
        return f"redfish_verify_ca={_CA_FILE}{again}"
    if reason is Reason.BMC_SYSTEM_UNCLEAR:
        return shlex.quote(f"redfish_system_id={_SYSTEM_PATH}")
    if reason in _OF_ADDRESS:
        for name, value in info.items():
            if name.endswith(_ADDRESS):
                address = value if reason is Reason.BMC_UNCONFIRMED else _NEW_ADDRESS
                return shlex.quote(f"{name}={address}") + again
    return None


MAX_REFUSED_CALLERS_OF_SOURCE: Final = 40
# Discovered machines that are counted beside them, the newest first.
MAX_COUNTED_DISCOVERIES: Final = 100


def count_callers(refused: int, discovered: int = 0) -> str:
    """Return how many unknown machines called, "" if none did; records of more than a source's limit are forgotten."""
    is_cut = refused >= MAX_REFUSED_CALLERS_OF_SOURCE or discovered >= MAX_COUNTED_DISCOVERIES
    number = refused + discovered
    return f"{'at least ' if is_cut else ''}{many(number, 'unknown machine')}" if number else ""
