"""A machine's virtual drives, as the node's ``internal`` document records them. Pure."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from ferroscope.core.model import Node

# Device type -> URL of the image that a caller has attached.
ATTACHED: Final = "attached_media"
# The virtual drives as a worker saw them last.
SEEN: Final = "virtual_media"


def kept_images(node: Node) -> tuple[str, ...]:
    """Return the images that an inspection must neither eject nor treat as its own."""
    attached = node.internal.get(ATTACHED)
    return tuple(map(str, attached.values())) if isinstance(attached, dict) else ()


def secure_url(url: str, base: str, public: str) -> str:
    """Return the https URL of the same file, "" if unknown: below ``public`` if it is below the API's ``base``."""
    start = f"{base.rstrip('/')}/"
    try:
        parts = urlsplit(url)
        has_default_port = parts.port in (None, 80)
    except ValueError:
        return ""
    if parts.scheme != "http":
        return ""
    if base and url.startswith(start) and public.startswith("https://"):
        return f"{public.rstrip('/')}/{url.removeprefix(start)}"
    # Another port speaks http only.
    return parts._replace(scheme="https", netloc=parts.netloc.removesuffix(":80")).geturl() if has_default_port else ""
