"""The body of a request to an HTTP server of the tests."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler


def whole_body(handler: BaseHTTPRequestHandler) -> bytes:
    """Return the request's body; ``ConnectionAbortedError`` if it was cut off, because its sender was killed.

    No server acts on half a request, and the test that killed the sender must not fail by it.
    """
    length = int(handler.headers.get("Content-Length") or 0)
    body = handler.rfile.read(length)
    if len(body) < length:
        handler.close_connection = True
        raise ConnectionAbortedError(f"{len(body)} of {length} bytes arrived")
    return body
