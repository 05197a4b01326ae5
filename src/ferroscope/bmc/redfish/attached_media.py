"""Images that callers of the API attach to a machine's virtual drives, beside the ramdisk's of an inspection.

As in Ironic, an image replaces what is in the drives of its kind, and a detachment empties all drives of the kinds. The
ramdisk's insertion spares them (``Image.keep``), and the worker lets nobody attach or detach during an inspection.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

from ferroscope.bmc.redfish.media import CDS, Drive, Insertion, read_drives
from ferroscope.contracts.images import Image, MediaDevice, Medium
from ferroscope.core.virtual_media import secure_url

# Device types of the Bare Metal API -> media types of Redfish, in lower case.
_KINDS: Final[dict[MediaDevice, tuple[str, ...]]] = {
    MediaDevice.CDROM: CDS,
    MediaDevice.DISK: ("usbstick",),
    MediaDevice.FLOPPY: ("floppy",),
}


class Attachment:
    """Attaches one image, in as many tries as the call has."""

    def __init__(self, device: MediaDevice, url: str) -> None:
        self._kinds = _KINDS[device]
        self._image = Image(iso=url, secure={url: secure_url(url, "", "")})
        self._insertion = Insertion(self._image, None)

    def run(self, system: Any) -> None:
        """Empty the drives of this kind, and insert the image into the last: some BMCs boot from the first only."""
        drives = self._insertion.drives(system)[::-1]
        if not self._insertion.has_started:
            for drive in _drives_of(drives, self._kinds):
                if not drive.is_empty and not drive.has(self._image.urls):
                    drive.eject()
        if self._insertion.put(drives, self._kinds, self._image.iso) is None:
            self._insertion.raise_missing(f"a virtual drive for {'/'.join(self._kinds)}", system)


def detach(system: Any, devices: Collection[MediaDevice], *, patient: bool = True) -> int:
    """Empty the drives for these devices, all drives if there are none; return how many had a medium."""
    kinds = [kind for device in devices or MediaDevice for kind in _KINDS[device]]
    drives, unread = read_drives(system, patient=patient)
    ejected = 0
    for drive in _drives_of(drives, kinds) if devices else drives:
        drive.refresh()  # two paths may lead to one drive
        if not drive.is_empty:
            drive.eject()
            ejected += 1
    if unread and not ejected:
        raise unread
    return ejected


def list_media(system: Any, *, patient: bool = True) -> list[Medium]:
    """Return the virtual drives with what is in them."""
    drives, unread = read_drives(system, patient=patient)
    if unread and not drives:
        raise unread
    return [
        Medium(media_types=drive.media_types, inserted=not drive.is_empty, image=next(iter(drive.image_names), None))
        for drive in drives
    ]


def _drives_of(drives: Sequence[Drive], kinds: Collection[str]) -> list[Drive]:
    return [drive for drive in drives if any(kind in kinds for kind in drive.kinds)]
