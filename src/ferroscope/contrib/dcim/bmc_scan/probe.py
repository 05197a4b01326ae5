"""Probes an address for a BMC, without credentials: Redfish's service root, and IPMI's first messages.

Any server may be at the address. So a probe ends within its time and reads a bounded number of bytes; its result is
short and checked, and it follows no redirect. Certificates are not verified, because nothing secret is sent.
Sources: DSP0266 (the service root needs no authentication); IPMI 2.0, 13.2.3 (RMCP presence ping) and 22.13.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
from typing import Any, Final

import msgspec

from ferroscope.remote.deadline import Deadline, DeadlineError
from ferroscope_client.core import json_safety
from ferroscope_client.core.values import one_line

ROOT: Final = "/redfish/v1/"
_MAX_BODY_BYTES: Final = 64 * 1024
_MAX_TEXT_CHARACTERS: Final = 64
_MAX_PACKETS: Final = 16

_PING: Final = bytes.fromhex("06 00 ff 06  00 00 11 be  80 00 00 00")
# Get Channel Authentication Capabilities for this channel, at the level of an administrator, with IPMI 2.0's data.
_CAPABILITIES: Final = bytes.fromhex("06 00 ff 07  00 00000000 00000000 09  20 18 c8 81 00 38 8e 04 b5")
_VENDORS: Final = {
    2: "IBM", 11: "HP", 343: "Intel", 674: "Dell", 5771: "Cisco", 7154: "ASRock Rack", 10368: "Fujitsu",
    10876: "Supermicro", 15370: "Gigabyte", 19046: "Lenovo", 47196: "HPE", 47488: "Supermicro",
}  # fmt: skip


class RedfishRoot(msgspec.Struct, frozen=True):
    """The public data of a Redfish service about itself."""

    version: str
    vendor: str | None = None
    product: str | None = None
    uuid: str | None = None


class IpmiAnswer(msgspec.Struct, frozen=True):
    """A BMC that answers to IPMI; ``version`` is "" if it only answered the ping."""

    version: str = ""
    vendor: str | None = None


def redfish(address: str, port: int, seconds: float) -> RedfishRoot | str:
    """Return the service root, or a text that says why there is none: "" if nothing answers."""
    connected = False
    try:
        with Deadline(seconds) as deadline:
            try:
                with socket.create_connection((address, port), deadline.seconds_left()) as plain:
                    connected = True
                    return _root(plain, f"[{address}]" if ":" in address else address, port, deadline)
            except (OSError, http.client.HTTPException, ValueError, RecursionError) as exc:
                deadline.seconds_left()  # the deadline closes the connection, which looks like an error of its server
                return _why(exc)
    except DeadlineError:
        return f"no answer within {seconds:g} s" if connected else ""


def _root(plain: socket.socket, host: str, port: int, deadline: Deadline) -> RedfishRoot | str:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    request = f"GET {ROOT} HTTP/1.1\r\nHost: {host}:{port}\r\nAccept: application/json\r\nConnection: close\r\n\r\n"
    deadline.watch(plain)
    with context.wrap_socket(plain) as connection:
        connection.sendall(request.encode())
        response = http.client.HTTPResponse(connection)
        response.begin()
        body = response.read(_MAX_BODY_BYTES + 1)
    if response.status != 200 or len(body) > _MAX_BODY_BYTES:
        return f"an HTTPS server without Redfish (HTTP {response.status})"
    return _describe_root(json_safety.decode(body))


def _describe_root(document: Any) -> RedfishRoot | str:
    version = _text(document.get("RedfishVersion")) if isinstance(document, dict) else None
    if version is None:
        return "an HTTPS server without Redfish"
    return RedfishRoot(
        version, _text(document.get("Vendor")), _text(document.get("Product")), _text(document.get("UUID"))
    )


def _text(value: Any) -> str | None:
    return one_line(value.strip(), _MAX_TEXT_CHARACTERS) if isinstance(value, str) and value.strip() else None


def _why(error: Exception) -> str:
    if isinstance(error, ConnectionRefusedError | TimeoutError):
        return ""
    if isinstance(error, ssl.SSLError):
        return f"TLS handshake failed ({one_line(str(error.reason), _MAX_TEXT_CHARACTERS)})"
    if isinstance(error, OSError) and error.errno is not None and not isinstance(error, ConnectionError):
        return ""  # no route, host down
    return "an HTTPS server that does not answer as one"


def ipmi(address: str, port: int, seconds: float) -> IpmiAnswer | None:
    """Return the answer over IPMI, None if nothing answers. Both messages are sent twice, because UDP may lose them."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    answer: IpmiAnswer | None = None
    with socket.socket(family, socket.SOCK_DGRAM) as channel, contextlib.suppress(OSError):
        channel.connect((address, port))  # from now on the kernel drops what others send
        for share in (2, 1):
            with Deadline(seconds / share / 2) as deadline:
                channel.send(_PING)
                channel.send(_CAPABILITIES)
                for _ in range(_MAX_PACKETS):
                    try:
                        channel.settimeout(deadline.seconds_left())
                        packet = channel.recv(1024)
                    except (TimeoutError, DeadlineError):
                        break
                    answer = parse_packet(packet) or answer
                    if answer is not None and answer.version:
                        return answer
    return answer


def parse_packet(packet: bytes) -> IpmiAnswer | None:
    """Return the content of a packet, None if it is neither of the two answers."""
    if packet[:4] == b"\x06\x00\xff\x06" and packet[4:8] == b"\x00\x00\x11\xbe" and packet[8:9] == b"\x40":
        return IpmiAnswer() if len(packet) >= 20 and packet[20:21] and packet[20] & 0x80 else None
    if packet[:4] != b"\x06\x00\xff\x07" or len(packet) < 30 or packet[4] != 0:
        return None
    command, code, kinds, versions = packet[19], packet[20], packet[22], packet[24]
    if command != 0x38 or code != 0:
        return None
    vendor = _VENDORS.get(int.from_bytes(packet[25:28], "little"))
    return IpmiAnswer("2.0" if kinds & 0x80 and versions & 0x02 else "1.5", vendor)
