"""What ``driver_info`` says of a node's IPMI BMC: the names, their checks, what they mean.

The names are those of the Bare Metal service's ipmi driver. Pure; asks no BMC.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from ferroscope.domain.model import Document
from ferroscope.domain.reasons import Reason
from ferroscope.ports.errors import BmcError

LEVELS: Final = ("ADMINISTRATOR", "OPERATOR", "USER", "CALLBACK")
# Interface of ipmitool for each version of the protocol.
_INTERFACES: Final = {"2.0": "lanplus", "1.5": "lan"}
_MAX_PASSWORD: Final = 20  # bytes; IPMI 2.0, section 22.30
_HOST: Final = re.compile(r"[A-Za-z0-9_.:%-]{1,255}\Z")

PROPERTIES: Final[dict[str, str]] = {
    "ipmi_address": "IP address or host name of the BMC. Required.",
    "ipmi_port": "UDP port; 623 unless set.",
    "ipmi_username": "Account to log in with; the anonymous one unless set.",
    "ipmi_password": "Its password, of at most 20 bytes.",
    "ipmi_priv_level": f"Privilege level of the session, one of {', '.join(LEVELS)}; ADMINISTRATOR unless set.",
    "ipmi_cipher_suite": "Number of the cipher suite; unless set, 17, and 3 for a BMC that does not know 17.",
    "ipmi_protocol_version": "2.0 (the default) or 1.5.",
    "ipmi_disable_boot_timeout": "Whether a boot device outlives the 60 seconds that IPMI gives it; true unless set.",
}


class Access(msgspec.Struct, frozen=True):
    """How to reach one BMC."""

    host: str
    port: int = 623
    username: str | None = None
    password: str = ""
    level: str = "ADMINISTRATOR"
    cipher: int | None = None
    interface: str = "lanplus"
    keep_boot_device: bool = True

    def __repr__(self) -> str:
        return f"Access({self.host}, {self.port})"


def problem(info: Document) -> str | None:
    """Return what is wrong with ``driver_info``, in a sentence, or None."""
    try:
        read(info)
    except BmcError as exc:
        return str(exc)
    return None


def read(info: Document) -> Access:
    """Return how to reach the BMC; ``BmcError`` (permanent) where it does not say so."""
    password = _text(info, "ipmi_password") or ""
    if len(password.encode()) > _MAX_PASSWORD or "\n" in password or "\0" in password:
        raise _wrong(f"ipmi_password must be one line of at most {_MAX_PASSWORD} bytes, as IPMI has it")
    level = (_text(info, "ipmi_priv_level") or "ADMINISTRATOR").upper()
    if level not in LEVELS:
        raise _wrong(f"ipmi_priv_level must be one of {', '.join(LEVELS)}")
    version = str(info.get("ipmi_protocol_version") or "2.0")
    if version not in _INTERFACES:
        raise _wrong(f"ipmi_protocol_version must be one of {', '.join(_INTERFACES)}")
    if info.get("ipmi_bridging") not in (None, "", "no"):
        raise _wrong("ipmi_bridging is not supported here; give the address of the BMC itself")
    username = _text(info, "ipmi_username")
    if username is not None and username.startswith("-"):
        raise _wrong("ipmi_username must not begin with a dash")
    return Access(
        host=_host(info),
        port=_number(info, "ipmi_port", 1, 65535) or 623,
        username=username,
        password=password,
        level=level,
        cipher=_number(info, "ipmi_cipher_suite", 0, 255),
        interface=_INTERFACES[version],
        keep_boot_device=str(info.get("ipmi_disable_boot_timeout", True)).lower() in ("true", "1", "yes", "on"),
    )


def _host(info: Document) -> str:
    address = _text(info, "ipmi_address")
    if address is None:
        raise _wrong("driver_info needs ipmi_address: the IP address or host name of the BMC")
    host = address.strip("[]")
    if not _HOST.match(host) or host.startswith("-"):
        raise _wrong("ipmi_address must be an IP address or a host name; a port goes into ipmi_port")
    return host


def _number(info: Document, name: str, least: int, most: int) -> int | None:
    value = info.get(name)
    if value is None or value == "":
        return None
    text = str(value)
    if isinstance(value, bool) or not (text.isascii() and text.isdigit()) or len(text) > 9:
        raise _wrong(f"{name} must be a number from {least} to {most}")
    if not least <= int(text) <= most:
        raise _wrong(f"{name} must be a number from {least} to {most}")
    return int(text)


def _text(info: Document, name: str) -> str | None:
    value: Any = info.get(name)
    if value is None or value == "":
        return None
    if not isinstance(value, str) or len(value) > 255 or "\0" in value:
        raise _wrong(f"{name} must be a text of at most 255 characters")
    return value


def _wrong(message: str) -> BmcError:
    return BmcError(message, transient=False, reason=Reason.DRIVER_INFO_INVALID)
