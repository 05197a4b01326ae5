"""The images that BMCs fetch: drivers that boot them or attach them, and how a worker checks them beforehand.

For the calls of drivers, see ``contracts.bmc``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Protocol, runtime_checkable

import msgspec

from ferroscope.contracts.bmc import Capability
from ferroscope.core.model import Node
from ferroscope_client.core.reasons import Reason


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


@runtime_checkable
class RamdiskBoot(Protocol, metaclass=Capability):
    """Optional: the driver boots the ramdisk without PXE, for example by virtual media.

    Its boot interface is named ``DRIVER-virtual-media``; it is used if an image is configured and the node selects no
    other interface.
    """

    def insert_ramdisk(self, node: Node, image: Image) -> str | None:
        """Insert ``image`` and boot from it once; return a remark, or None.

        The remark informs operators that the machine boots, but not exactly as requested.
        """

    def eject_ramdisk(self, node: Node, image: Image) -> bool:
        """Eject ``image`` if it is inserted, and no other medium; return whether it was."""


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


@runtime_checkable
class AttachesMedia(Protocol, metaclass=Capability):
    """Optional: images can be attached to the machine's virtual drives, whatever they are for; nothing boots from them.

    The first two within ``inventory_timeout``. Not called while an inspection may use the drives.
    """

    def attach_medium(self, node: Node, device: MediaDevice, url: str) -> None:
        """Insert the image, which the BMC fetches, in place of what is in the drives of this kind."""

    def detach_media(self, node: Node, devices: Sequence[MediaDevice]) -> int:
        """Empty the drives of these kinds, or all if there are none; return how many had a medium."""

    def media(self, node: Node) -> Sequence[Medium]:
        """Return all virtual drives."""


class Flaw(msgspec.Struct, frozen=True):
    """Why an image will not boot. ``certain``: no BMC could boot it; otherwise it may be that only we cannot."""

    reason: Reason
    message: str
    certain: bool


class Images(Protocol):
    """Checks images; safe for many threads."""

    def flaw(self, url: str) -> Flaw | None:
        """Return what is wrong with the image, None if nothing is known to be; within some seconds, without raising.

        It may answer from memory: a good image for some minutes, any other for less than one.
        """


class Unchecked:
    """Checks nothing."""

    def flaw(self, _url: str) -> Flaw | None:
        return None
