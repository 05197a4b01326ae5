"""Loads a file as firmware and iPXE do: over TFTP (RFC 1350; RFC 2348 and 2349 for block size and size), over HTTP."""

from __future__ import annotations

import http.client
import socket
import struct
import time
import urllib.parse
from typing import Final

import msgspec

_TFTP_PORT: Final = 69
_READ, _DATA, _ACK, _ERROR, _OPTIONS = 1, 3, 4, 5, 6
_BLOCK_BYTES: Final = 1428
_REPEAT_SECONDS: Final = 1.0
# Only the first part of a file is loaded: that proves that it is readable.
_ENOUGH_BYTES: Final = 64 * 1024


class PackageDownload(msgspec.Struct, frozen=True):
    """``size`` of the file as the server says; ``error``: "" if it was loaded."""

    size: int | None = None
    error: str = ""


def tftp(server: str, file: str, *, seconds: float) -> PackageDownload:
    """Load the beginning of a file over TFTP."""
    end = time.monotonic() + seconds
    words = (file, "octet", "blksize", str(_BLOCK_BYTES), "tsize", "0")
    last = struct.pack("!H", _READ) + b"".join(word.encode() + b"\0" for word in words)
    received, size, expected, block = 0, None, 0, 512
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        peer = (server, _TFTP_PORT)
        client.sendto(last, peer)
        while time.monotonic() < end:
            client.settimeout(min(_REPEAT_SECONDS, max(0.01, end - time.monotonic())))
            try:
                data, peer = client.recvfrom(65536)
            except OSError:  # nothing yet, or an ICMP error
                client.sendto(last, peer)
                continue
            if len(data) < 4:
                continue
            code, number = struct.unpack_from("!HH", data)
            if code == _ERROR:
                return PackageDownload(error=f"TFTP error {number}: {_text(data[4:])}")
            if code == _OPTIONS:
                block = _BLOCK_BYTES
                pairs = data[2:].split(b"\0")
                size = next((int(b) for a, b in zip(pairs[::2], pairs[1::2], strict=False) if a == b"tsize"), None)
            elif code == _DATA and number == expected + 1:
                expected, received = number, received + len(data) - 4
                if len(data) - 4 < block or received >= _ENOUGH_BYTES:
                    client.sendto(struct.pack("!HH", _ERROR, 0) + b"enough\0", peer)
                    return PackageDownload(size=received if size is None else size)
            last = struct.pack("!HH", _ACK, expected)
            client.sendto(last, peer)
    return PackageDownload(error="no answer" if not received else "the transfer stopped")


def web(url: str, *, seconds: float) -> PackageDownload:
    """Load the beginning of a file over HTTP."""
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 80, timeout=seconds)
    try:
        connection.request("GET", parts.path or "/")
        answer = connection.getresponse()
        if answer.status != 200:
            return PackageDownload(error=f"HTTP {answer.status} {answer.reason}")
        answer.read(_ENOUGH_BYTES)
        length = answer.headers.get("Content-Length", "")
        return PackageDownload(size=int(length) if length.isdigit() else None)
    except TimeoutError:
        return PackageDownload(error="no answer")
    except (OSError, http.client.HTTPException) as exc:
        return PackageDownload(error=str(exc))
    finally:
        connection.close()


def _text(data: bytes) -> str:
    text = data.partition(b"\0")[0].decode("ascii", "replace")
    return "".join(character if character.isprintable() else "?" for character in text)
