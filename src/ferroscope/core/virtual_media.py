"""What is known of a machine's virtual drives, in the node's ``internal`` document. Pure."""

from __future__ import annotations

from typing import Final

from ferroscope.core.model import Node

# Device type -> URL of the image that a caller has attached.
ATTACHED: Final = "attached_media"
# The virtual drives as a worker has seen them last.
SEEN: Final = "virtual_media"


def kept(node: Node) -> tuple[str, ...]:
    """Return the images that an inspection must neither eject nor take for its own."""
    known = node.internal.get(ATTACHED)
    return tuple(map(str, known.values())) if isinstance(known, dict) else ()
