"""What a failed TLS handshake means: the same for BMCs and for our own API."""

from __future__ import annotations

import ssl
from typing import Final

# The other side answered the handshake without TLS; the names are those of OpenSSL's releases.
_PLAIN: Final = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST")


def is_plain(error: ssl.SSLError) -> bool:
    """Whether the port does not speak TLS at all."""
    return any(word in str(error.reason) for word in _PLAIN)


def is_disagreement(error: ssl.SSLError) -> bool:
    """Whether version or cipher negotiation failed, as opposed to a handshake that was cut off."""
    return any(word in str(error.reason) for word in ("PROTOCOL_VERSION", "UNSUPPORTED", "HANDSHAKE_FAILURE"))
