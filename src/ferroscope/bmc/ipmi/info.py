"""The IPMI fields of ``driver_info``: names, validation, meaning.

The names are those of the Bare Metal service's ipmi driver. Pure; contacts no BMC.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Final

import msgspec

from ferroscope.bmc import text_field, wrong
from ferroscope.core.model import Document
from ferroscope_client.core import bmc_place, values

_NUMBER: Final = re.compile(r"(0x[0-9a-f]{1,8}|[0-9]{1,9})\Z", re.ASCII | re.IGNORECASE)
# A chassis controller forwards requests to a BMC behind it over its IPMB, over one channel (single) or two (dual).
KINDS: Final = ("no", "single", "dual")
# Field -> ipmitool's option and the maximum; channels are 0 to 15, addresses are bytes.
_TARGET: Final = {"ipmi_target_channel": ("-b", 0x0F), "ipmi_target_address": ("-t", 0xFF)}
_TRANSIT: Final = {"ipmi_transit_channel": ("-B", 0x0F), "ipmi_transit_address": ("-T", 0xFF)}
_LOCAL: Final = {"ipmi_local_address": ("-m", 0xFF)}
LEVELS: Final = ("ADMINISTRATOR", "OPERATOR", "USER", "CALLBACK")
# ipmitool's interface for each protocol version.
_INTERFACES: Final = {"2.0": "lanplus", "1.5": "lan"}
# Maximum bytes for each protocol version; IPMI 2.0, section 22.30.
_MAX_PASSWORD: Final = {"2.0": 20, "1.5": 16}
_MAX_KEY: Final = 20
_text: Final = partial(text_field, max_characters=255)
PROPERTIES: Final[dict[str, str]] = {
    "ipmi_address": "IP address or host name of the BMC. Required.",
    "ipmi_port": "UDP port. Default: 623.",
    "ipmi_username": "User name. Default: the anonymous account.",
    "ipmi_password": "Password, at most 20 bytes (16 in IPMI 1.5).",
    "ipmi_hex_kg_key": "The BMC's key Kg for IPMI 2.0, in hexadecimal, if it has one.",
    "ipmi_priv_level": f"Privilege level of the session, one of {', '.join(LEVELS)}. Default: ADMINISTRATOR.",
    "ipmi_cipher_suite": "Number of the cipher suite. Default: 17, or 3 if the BMC does not support 17.",
    "ipmi_protocol_version": "2.0 (the default) or 1.5.",
    "ipmi_disable_boot_timeout": "Whether to disable IPMI's 60-second time-out of the boot device. Default: true.",
    "ipmi_force_boot_device": "Accepted without effect: the boot device is set before each boot of a ramdisk.",
    "ipmi_bridging": f"One of {', '.join(KINDS)} (default: no): the BMC is behind the one at ipmi_address.",
    "ipmi_target_channel": "Channel to the BMC, 0 to 15. Required for single and dual bridging.",
    "ipmi_target_address": "IPMB address of the BMC, such as 0x82. Required for single and dual bridging.",
    "ipmi_transit_channel": "Channel to the transit BMC. Required for dual bridging.",
    "ipmi_transit_address": "IPMB address of the transit BMC. Required for dual bridging.",
    "ipmi_local_address": "Local IPMB address for bridging. Optional.",
}


class IpmiAccess(msgspec.Struct, frozen=True):
    """How to reach a BMC."""

    host: str
    port: int = 623
    username: str | None = None
    password: str = ""
    level: str = "ADMINISTRATOR"
    cipher: int | None = None
    key: bytes = b""
    bridge: tuple[str, ...] = ()
    interface: str = "lanplus"
    keep_boot_device: bool = True

    def __repr__(self) -> str:
        return f"Access({self.host}, {self.port})"


def read(info: Document) -> IpmiAccess:
    """Return how to reach the BMC; ``BmcError`` (permanent) if a field is missing or invalid."""
    level = (_text(info, "ipmi_priv_level") or "ADMINISTRATOR").strip().upper()
    if level not in LEVELS:
        raise wrong(f"ipmi_priv_level must be one of {', '.join(LEVELS)}")
    version = str(info.get("ipmi_protocol_version") or "2.0")
    version = f"{version}.0" if version == "2" else version
    if version not in _INTERFACES:
        raise wrong(f"ipmi_protocol_version must be one of {', '.join(_INTERFACES)}")
    cipher = number(info, "ipmi_cipher_suite", 0, 255)
    if cipher is not None and version == "1.5":
        raise wrong("ipmi_cipher_suite requires IPMI 2.0; remove it, or ipmi_protocol_version 1.5")
    _flag(info, "ipmi_force_boot_device", default=False)
    username = _text(info, "ipmi_username")
    if username is not None and username.startswith("-"):
        raise wrong("ipmi_username must not begin with a dash")
    return IpmiAccess(
        host=_host(info),
        port=number(info, "ipmi_port", 1, 65535) or 623,
        username=username,
        password=_password(info, version),
        level=level,
        cipher=cipher,
        key=_key(info),
        bridge=options(info),
        interface=_INTERFACES[version],
        keep_boot_device=_flag(info, "ipmi_disable_boot_timeout", default=True),
    )


def options(info: Document) -> tuple[str, ...]:
    """Return ipmitool's options, none without bridging; ``BmcError`` if a field is missing."""
    kind = info.get("ipmi_bridging") or "no"
    if kind not in KINDS:
        raise wrong(f"ipmi_bridging must be one of {', '.join(KINDS)}")
    if kind == "no":
        return ()
    needed = _TARGET if kind == "single" else _TRANSIT | _TARGET
    missing = [name for name in needed if info.get(name) in (None, "")]
    if missing:
        raise wrong(f"ipmi_bridging {kind} requires {' and '.join(missing)}")
    words: list[str] = []
    for name, (option, maximum) in (_LOCAL | needed).items():
        value = number(info, name, 0, maximum)
        if value is not None:
            words += [option, str(value)]
    return tuple(words)


def number(info: Document, name: str, minimum: int, maximum: int) -> int | None:
    """Return the field's number, None if it is not set; ``BmcError`` (permanent) if it is invalid or out of range.

    It is a JSON number, or a string in decimal or like 0x20.
    """
    value = info.get(name)
    if value is None or value == "":
        return None
    digits = str(int(value) if isinstance(value, float) and value.is_integer() else value).strip()
    parsed = None
    if _NUMBER.match(digits) and not isinstance(value, bool):
        parsed = int(digits, 16 if digits.lower().startswith("0x") else 10)
    if parsed is None or not minimum <= parsed <= maximum:
        raise wrong(f"{name} must be a number from {minimum} to {maximum}")
    return parsed


def _password(info: Document, version: str) -> str:
    password, max_bytes = _text(info, "ipmi_password") or "", _MAX_PASSWORD[version]
    if len(password.encode()) > max_bytes or "\n" in password or "\0" in password:
        raise wrong(f"ipmi_password must be one line of at most {max_bytes} bytes for IPMI {version}")
    return password


def _key(info: Document) -> bytes:
    text = _text(info, "ipmi_hex_kg_key") or ""
    try:
        key = bytes.fromhex(text)
    except ValueError:
        raise wrong("ipmi_hex_kg_key must be an even number of hexadecimal digits") from None
    if len(key) > _MAX_KEY:
        raise wrong(f"ipmi_hex_kg_key must have at most {2 * _MAX_KEY} hexadecimal digits")
    key = key.rstrip(b"\0")  # IPMI pads shorter keys with zero bytes
    if b"\0" in key or b"\n" in key:
        # ipmitool accepts such a key only on its command line, where all users of the host can read it.
        raise wrong("ipmi_hex_kg_key must not contain the bytes 00 or 0a: ipmitool would need it on its command line")
    return key


def _flag(info: Document, name: str, *, default: bool) -> bool:
    value = info.get(name)
    if value is None or value == "":
        return default
    flag = values.parse(str(value))
    if flag is None:
        raise wrong(f"{name} must be true or false")
    return flag


def _host(info: Document) -> str:
    address = _text(info, "ipmi_address")
    if address is None:
        raise wrong(bmc_place.MISSING_ADDRESS["ipmi_address"])
    if why := bmc_place.ipmi_problem(address):
        raise wrong(why)
    return address.strip().strip("[]")
