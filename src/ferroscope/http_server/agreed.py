"""What the server and an application agree on: keys of an environ, and the header with a request's ID."""

from __future__ import annotations

from typing import Final

from ferroscope_client.core.values import new_uuid

HEADER: Final = "Openstack-Request-Id"
# Present if the body has not been read and the application only decides whether to read it. Status 100 means yes; any
# other response is final.
HEAD_ONLY: Final = "ferroscope.head_only"
# The address that a request comes from: the connection's, or the one that a trusted proxy reports; "" if unknown.
SOURCE: Final = "ferroscope.source"
NAMES: Final = "ferroscope.client_certificate"
"""The key of the environ that has the names of the client's certificate, one in each line, as ``KIND:NAME``. No header
has this name."""
KINDS_OF_NAMES: Final = ("CN", "DNS", "mail", "URI")
"""The common name of the subject, and the names of subjectAltName."""


def new_request_id() -> str:
    """Return an ID for a request that does not reach the application."""
    return f"req-{new_uuid()}"


def retries_after(user_agent: str) -> bool:
    """Whether a client understands Retry-After.

    python-ironicclient (at least 6.3.0) crashes on it; without it, it retries on its own.
    """
    return not user_agent.startswith("python-ironicclient")
