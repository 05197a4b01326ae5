"""The ramdisk's ISO image, for BMCs: ``[inspector] ramdisk_iso``, if it is a file of this host.

BMCs cannot authenticate, so everybody who reaches the API can read the image; nothing else of the host's files.
"""

from __future__ import annotations

from pathlib import Path

from ferroscope.api.http.errors import MissingError
from ferroscope.api.http.route import ApiContext, Call, NoQuery, Reply
from ferroscope.api.http.served_files import ServedFile


def get_image(context: ApiContext, call: Call[NoQuery, None]) -> Reply:
    """Return the image, or the range of it that is asked for."""
    configured = context.settings.inspector.ramdisk_iso
    if not configured.startswith("/") or call.path["name"] != Path(configured).name:
        raise MissingError(f"There is no image {call.path['name'][:100]!r} here; see [inspector] ramdisk_iso.")
    return Reply(200, ServedFile(Path(configured)))
