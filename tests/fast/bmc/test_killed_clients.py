"""A client that is killed while it sends a request fails no test of a simulated BMC, as it troubles no real one."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

from tests.support.rows import each
from tests.support.vendors.dell import IDRAC9
from tests.support.vendors.logins import SESSIONS
from tests.support.vendors.service import serving

HEAD = f"POST {SESSIONS} HTTP/1.1\r\nHost: bmc\r\nContent-Type: application/json\r\nContent-Length: 40\r\n\r\n".encode()


@each("part", [b"", b'{"UserName": "ad'])
def test_half_a_request_is_no_request(part: bytes) -> None:
    with serving(IDRAC9) as bmc:
        place = urlsplit(bmc.url)
        with socket.create_connection((place.hostname, place.port)) as client:
            client.sendall(HEAD + part)
            client.shutdown(socket.SHUT_WR)
            assert client.recv(100) == b""
    assert bmc.asked == []
