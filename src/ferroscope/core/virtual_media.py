"""Images and virtual drives; a node's ``internal`` document records what is in its drives. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final
from urllib.parse import urlsplit

import msgspec

from ferroscope.core.model import Node

# Device type -> URL of the image that a caller has attached.
ATTACHED: Final = "attached_media"
# The virtual drives as a worker saw them last.
SEEN: Final = "virtual_media"


class Image(msgspec.Struct, frozen=True):
    """The images to boot a ramdisk from, as URLs that the BMC fetches.

    ``iso`` is the bootable image; ``parameters`` a small disk image with the agent's parameters, "" for none. Drives
    with one of the images to ``keep``, which others have attached, are neither used nor emptied. ``secure``: URL -> the
    same by https, for BMCs that refuse http.
    """

    iso: str
    parameters: str = ""
    keep: tuple[str, ...] = ()
    secure: Mapping[str, str] = {}

    def spellings(self, url: str) -> list[str]:
        """Return the URL, and that of the same by https."""
        return list(filter(None, (url, self.secure.get(url))))

    @property
    def urls(self) -> list[str]:
        """All URLs by which its images may be inserted."""
        return [*self.spellings(self.iso), *self.spellings(self.parameters)]


class MediaDevice(StrEnum):
    """The virtual devices that an image can be attached to, as the Bare Metal API spells them."""

    DISK = "disk"
    CDROM = "cdrom"
    FLOPPY = "floppy"


class Medium(msgspec.Struct, frozen=True):
    """A virtual drive, as the BMC shows it: ``media_types`` in its own words, and the URL of the image in it."""

    media_types: list[str]
    inserted: bool
    image: str | None


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
