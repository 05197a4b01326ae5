"""Why the API cannot be reached: each cause has words and a way out of its own."""

from __future__ import annotations

import errno
import os
import socket
import ssl

import pytest
import urllib3.exceptions

from ferroscope_client.client import _why
from tests.support.rows import each


def handshake_with_plain_http() -> Exception:
    """Return what OpenSSL says to an answer in plain HTTP."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context()
    tls = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    incoming.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    with pytest.raises(ssl.SSLError) as caught:
        tls.do_handshake()
    return urllib3.exceptions.SSLError(caught.value)


def because_of(cause: OSError) -> Exception:
    error = urllib3.exceptions.HTTPError("failed")
    error.__cause__ = cause
    return error


def untrusted() -> OSError:
    error = ssl.SSLCertVerificationError(1, "[SSL] certificate verify failed")
    error.verify_message = "self-signed certificate"
    return error


def test_https_to_a_port_of_plain_http_is_said_without_openssls_words() -> None:
    error = handshake_with_plain_http()
    error.__cause__ = error.args[0]
    why, advice = _why(error, "https://localhost:6385")
    assert why == "the port serves plain HTTP, not HTTPS"
    assert "http://localhost:6385" in advice


@each(
    ("cause", "url", "way_out"),
    [
        (untrusted(), "https://a", "FERROSCOPE_CACERT"),
        (socket.gaierror(-2, "Name or service not known"), "https://a", "host name"),
        (TimeoutError("timed out"), "https://a", "network"),
        (ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)), "http://a", "https://"),
        (ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED)), "http://a", "ferroscope all"),
    ],
)
def test_each_cause_has_its_own_way_out(cause: OSError, url: str, way_out: str) -> None:
    assert way_out in _why(because_of(cause), url)[1]
