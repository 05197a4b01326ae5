"""Virtual media of a Redfish system: which drive takes an image, and whether the image is really in there.

The drives of the system and of its managers are candidates (dell/terraform-provider-redfish#331,
lenovo/python-redfish-lenovo#21). The driver believes a command if the BMC shows its effect. It gives the BMC time for
that, and then tries the next drive. It recognizes its medium by host and path, because BMCs rewrite what they show
(ansible-collections/community.general#6969, #3042). It logs each foreign medium that it ejects.

Callers of the API attach images, too. As in Ironic, an image replaces what is in the drives of its kind, and a
detachment empties all drives of the kinds. The ramdisk's insertion spares these images (``Image.keep``), and the worker
rejects both calls during an inspection.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Final, NoReturn
from urllib.parse import unquote, urlsplit

import structlog
from sushy import exceptions
from sushy.resources.manager import virtual_media

from ferroscope.bmc.redfish.failures import TaskFailedError, is_running, is_temporary, message_of
from ferroscope.bmc.redfish.resources import Lenient, Reader, is_absent, path_of
from ferroscope.bmc.redfish.system import System, set_boot_device
from ferroscope.contracts.bmc import BootDevice
from ferroscope.contracts.errors import BmcError
from ferroscope.core.callback_secret import without_disk_key
from ferroscope.core.model import Document
from ferroscope.core.virtual_media import Image, MediaDevice, Medium, secure_url
from ferroscope_client.core.host_spelling import parse_address
from ferroscope_client.core.reasons import Reason
from ferroscope_client.core.values import natural, one_line, without_secrets
from ferroscope_client.hardware.readings import mapping

_log = structlog.get_logger(__name__)

_CDS: Final = ("cd", "dvd")
_DISKS: Final = ("usbstick", "floppy")
# Device types of the Bare Metal API -> media types of Redfish, in lower case.
_KINDS: Final[dict[MediaDevice, tuple[str, ...]]] = {
    MediaDevice.CDROM: _CDS,
    MediaDevice.DISK: ("usbstick",),
    MediaDevice.FLOPPY: ("floppy",),
}
_PROTOCOLS: Final = {"http": "HTTP", "https": "HTTPS", "nfs": "NFS", "cifs": "CIFS", "smb": "CIFS"}
_MAX_DRIVES: Final = 32
_MAX_MANAGERS: Final = 4
# How often the driver looks at a drive after an insertion before it tries another one: some BMCs read the image first
# (ansible-collections/community.general#8279).
_MAX_LOOKS: Final = 8
_LOOK_PAUSE_SECONDS: Final = 1.0
# How often a drive may answer that it is not ready before another one is tried.
_MAX_BUSY_ANSWERS: Final = 3
_MAX_SHOWN_CHARACTERS: Final = 120
# BMCs cut off what is longer than a field of theirs. No field is shorter than this.
_MIN_FIELD_CHARACTERS: Final = 31
# Unique identifiers: of a node, a session or a file.
_TOKEN: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f]{16,}")
_INSERT: Final = "#VirtualMedia.InsertMedia"


class VirtualMedia(Lenient, virtual_media.VirtualMedia):  # type: ignore[misc]
    """A virtual drive; one that does not say which methods it allows may be written."""

    def insert(self, url: str, media_type: str) -> None:
        """Insert an image, with the optional parameters that the service demands, and no others."""
        target, is_write = self._get_insert_media_uri()
        if is_write:
            self.insert_media(url)
            return
        body: Document = {"Image": url}
        offered = {"Inserted": True, "WriteProtected": True, "TransferMethod": "Stream", "MediaType": media_type}
        if protocol := _PROTOCOLS.get(urlsplit(url).scheme):
            offered["TransferProtocolType"] = protocol
        while True:
            try:
                self._conn.post(target, data=body)
            except exceptions.HTTPError as exc:
                answer = message_of(exc)
                demanded = {name: value for name, value in offered.items() if name not in body and name in answer}
                if not demanded and "UserName" not in body and self.is_credentials_required(exc):
                    demanded = {"UserName": "none", "Password": "none"}
                if not demanded:
                    raise
                body |= demanded
            else:
                return

    def _allow_patch(self) -> bool:
        return not self._get_headers().get("Allow") or bool(super()._allow_patch())


class Drive:
    """A virtual drive as the BMC shows it."""

    def __init__(self, system: System, path: str, document: Document) -> None:
        self.path = path
        self._system = system
        self._document = document

    @property
    def name(self) -> str:
        return one_line(str(self._document.get("Id") or self.path), _MAX_SHOWN_CHARACTERS)

    @property
    def kinds(self) -> list[str]:
        """Return its media types in lower case; if it lists none, those in its name."""
        if self.media_types:
            return [media_type.lower() for media_type in self.media_types]
        name = f"{self._document.get('Id')} {self._document.get('Name')}".lower()
        return [kind for kind in (*_CDS, *_DISKS) if kind in name]

    @property
    def media_types(self) -> list[str]:
        """Return its media types in Redfish's spelling."""
        listed = self._document.get("MediaTypes")
        media_types = listed if isinstance(listed, list) else [listed]
        return [media_type for media_type in media_types if isinstance(media_type, str) and media_type]

    @property
    def can_insert(self) -> bool:
        """Whether it takes media at all; some BMCs list slots that only their web page can use."""
        actions = mapping(self._document.get("Actions"))
        return self.has_action or (_INSERT not in actions and self._media()._allow_patch())

    @property
    def has_action(self) -> bool:
        """Whether it takes media by an action, and not by a write."""
        return bool(mapping(mapping(self._document.get("Actions")).get(_INSERT)).get("target"))

    @property
    def image_names(self) -> list[str]:
        """Return what the BMC says of the medium inside."""
        return [name for field in ("Image", "ImageName") if isinstance(name := self._document.get(field), str) and name]

    @property
    def is_empty(self) -> bool:
        inserted = self._document.get("Inserted")
        # Supermicro's slots are Inserted and NotConnected when they are empty (community.general#7470).
        if str(self._document.get("ConnectedVia")).lower() == "notconnected" and not self._document.get("Image"):
            return True
        return inserted is False or (inserted is None and not self.image_names)

    def has(self, urls: Iterable[str]) -> bool:
        """Whether one of these images is inside."""
        return not self.is_empty and any(is_same_image(image, url) for image in self.image_names for url in urls)

    def may_have(self, urls: Sequence[str]) -> bool:
        """Whether one of these images is inside, or may be, because the BMC does not show what is."""
        return self.has(urls) or (bool(urls) and not self.is_empty and not self.image_names)

    def insert(self, url: str) -> str:
        """Insert the image; return the path of the task that does so, "" if it was done at once."""
        self._media().insert(url, next(iter(self.media_types), "CD"))
        task = str(self._system._conn.task)
        self.refresh()
        return task

    def eject(self) -> None:
        """Eject, and verify that the drive is empty: sushy reports most refusals as success."""
        self._media().eject_media()
        self.refresh()
        if not self.is_empty:
            message = f"the virtual drive {self.name} still has its medium after it was ejected"
            raise BmcError(message, transient=True, reason=Reason.BMC_REFUSED)

    def eject_foreign_medium(self) -> None:
        """Eject, and log what was inside."""
        medium = ", ".join(map(_public_url, self.image_names)) or "a medium without a name"
        self.eject()
        address = urlsplit(self._system._conn._url).hostname
        _log.warning("ejected a foreign medium from a virtual drive", bmc=address, drive=self.name, medium=medium)

    def refresh(self) -> None:
        self._document = Reader(self._system._conn, patient=True).get(self.path) or self._document

    def _media(self) -> Any:
        system = self._system
        return VirtualMedia(system._conn, self.path, redfish_version=system.redfish_version, root=system.root)


class _Insertion:
    """Inserts an image. One object serves all tries of a call: it knows what was sent."""

    def __init__(self, image: Image) -> None:
        self._image = image
        self._looks: dict[tuple[str, str], int] = {}
        self._tasks: dict[tuple[str, str], str] = {}
        self._unread: Exception | None = None  # why drives may be missing for now
        self._https: dict[str, str] = {}  # of those that were refused by http
        self._busy: Counter[tuple[str, str]] = Counter()

    def _drives(self, system: System) -> list[Drive]:
        drives, self._unread = _read_drives(system)
        return drives

    def _raise_missing(self, attribute: str, system: System) -> NoReturn:
        """Raise that there is no such drive, or what has hidden it."""
        raise self._unread or exceptions.MissingAttributeError(attribute=attribute, resource=system.path)

    def _insert(self, drives: list[Drive], kinds: tuple[str, ...], url: str) -> Drive | None:
        """Return the drive that has the image now, None if there is no such drive; by https if http is refused."""
        tried_url = self._https.get(url, url)
        try:
            return self._insert_by(drives, kinds, tried_url)
        except exceptions.HTTPError as exc:
            if urlsplit(tried_url).scheme != "http" or isinstance(exc, exceptions.AccessError) or is_temporary(exc):
                raise
            secure = self._image.secure.get(url)
            if not secure:
                exc.hint = " an image by http, as those do that take https only: give it an https URL"
                raise
            self._https[url] = secure
            return self._insert_by(drives, kinds, secure)

    def _insert_by(self, drives: list[Drive], kinds: tuple[str, ...], url: str) -> Drive | None:
        able = {drive.path: drive for kind in kinds for drive in drives if kind in drive.kinds}.values()
        if (ours := next((drive for drive in able if self._is_ours(drive, url)), None)) is not None:
            return ours
        usable = [drive for drive in able if not drive.may_have(self._image.keep)]
        if able and not usable:
            first = next(iter(able))
            images = f"{', '.join(map(_public_url, first.image_names))}; detach it before the inspection"
            message = f"the virtual drive {first.name} has an image that was attached through the API: {images}"
            raise BmcError(message, transient=False, reason=Reason.BMC_REFUSED)
        if (present := next((drive for drive in usable if drive.has([url])), None)) is not None:
            return present
        refusal: Exception | None = None
        for drive in sorted(usable, key=lambda drive: (not drive.is_empty, not drive.has_action)):
            if self._looks.get((drive.path, url), 0) >= _MAX_LOOKS or not drive.can_insert:
                continue
            may_pass = refusal is not None and (is_temporary(refusal) or bool(self._image.secure.get(url)))
            if may_pass and not drive.is_empty:
                continue  # the BMC may only be busy, or want https: that is no reason to eject a foreign medium
            try:
                return self._insert_into(drive, url)
            except exceptions.AccessError:
                raise  # the account may not use the other drives either
            except (exceptions.HTTPError, TaskFailedError) as exc:
                self._busy[drive.path, url] += is_temporary(exc)
                if is_temporary(exc) and self._busy[drive.path, url] < _MAX_BUSY_ANSWERS:
                    raise
                refusal = exc  # another drive may take it
        if refusal is not None:
            raise refusal
        if any(key[1] == url for key in self._looks):
            message = f"the BMC accepted {_public_url(url)} as virtual media, and never inserted it; can it be read"
            raise BmcError(f"{message} from the BMC's network?", transient=False, reason=Reason.BMC_REFUSED)
        return None

    def _insert_into(self, drive: Drive, url: str) -> Drive:
        key = (drive.path, url)
        if key not in self._looks:
            if not drive.is_empty:
                drive.eject_foreign_medium()
            self._tasks[key] = drive.insert(url)
        self._looks[key] = self._looks.get(key, 0) + 1
        if self._is_ours(drive, url):
            return drive
        try:
            if self._tasks[key] and is_running(drive._system._conn, self._tasks[key]):
                self._looks[key] -= 1
            else:
                self._tasks[key] = ""
        except TaskFailedError:
            self._looks[key] = _MAX_LOOKS
            raise
        message = f"the BMC accepted the image, and does not show it in the virtual drive {drive.name}"
        raise BmcError(message, transient=True, reason=Reason.BMC_REFUSED, pause=_LOOK_PAUSE_SECONDS)

    def _is_ours(self, drive: Drive, url: str) -> bool:
        """Whether the drive, which was empty, has a medium since the BMC accepted ours, whatever it shows of it."""
        return (drive.path, url) in self._looks and not drive.is_empty


class RamdiskInsertion(_Insertion):
    """Inserts the ramdisk's image and boots from it once."""

    def __init__(self, image: Image, mode: str | None) -> None:
        super().__init__(image)
        self._mode = mode

    def run(self, system: System) -> str | None:
        """Insert the image, and the ramdisk's parameters if there is a second drive; return a remark, or None."""
        drives = self._drives(system)
        cd = self._insert(drives, _CDS, self._image.iso) or self._raise_missing("a virtual CD drive", system)
        remark = None
        if self._image.parameters:
            iso, keep = self._image.spellings(self._image.iso), self._image.keep
            others = [drive for drive in drives if drive.path != cd.path and not drive.has(iso)]
            usable = [drive for drive in others if not drive.may_have(keep)]
            if self._insert(usable, _DISKS, self._image.parameters) is None:
                remark = "no virtual drive for the ramdisk's parameters; the image must contain them"
        set_boot_device(system, BootDevice.CDROM, persistent=False, mode=self._mode)
        return remark


def eject(system: System, image: Image) -> bool:
    """Eject the image, and no other media; return whether it was inserted."""
    ours = image.urls
    ejected, nameless = False, []
    drives, unread = _read_drives(system)
    for drive in drives:
        drive.refresh()  # two paths may lead to one drive
        if drive.has(ours) and not drive.has(image.keep):
            drive.eject()
            ejected = True
        elif not drive.is_empty and not drive.image_names:
            nameless.append(drive.name)
    if unread and not ejected:
        raise unread
    if nameless and not ejected:
        message = f"the virtual drive {', '.join(nameless)} has a medium whose name the BMC does not show"
        raise BmcError(f"{message}; eject it if it is the ramdisk", transient=False, reason=Reason.BMC_REFUSED)
    return ejected


class Attachment(_Insertion):
    """Attaches one image for a caller of the API."""

    def __init__(self, device: MediaDevice, url: str) -> None:
        super().__init__(Image(iso=url, secure={url: secure_url(url, "", "")}))
        self._kinds = _KINDS[device]

    def run(self, system: System) -> None:
        """Empty the drives of this kind, and insert the image into the last: some BMCs boot from the first only."""
        drives = self._drives(system)[::-1]
        if not self._looks:
            for drive in _drives_of(drives, self._kinds):
                if not drive.is_empty and not drive.has(self._image.urls):
                    drive.eject()
        if self._insert(drives, self._kinds, self._image.iso) is None:
            self._raise_missing(f"a virtual drive for {'/'.join(self._kinds)}", system)


def detach(system: System, devices: Collection[MediaDevice]) -> int:
    """Empty the drives for these devices, all drives if there are none; return how many had a medium."""
    kinds = [kind for device in devices for kind in _KINDS[device]]
    drives, unread = _read_drives(system)
    ejected = 0
    for drive in _drives_of(drives, kinds) if devices else drives:
        drive.refresh()  # two paths may lead to one drive
        if not drive.is_empty:
            drive.eject()
            ejected += 1
    if unread and not ejected:
        raise unread
    return ejected


def list_media(system: System) -> list[Medium]:
    """Return the virtual drives with what is in them."""
    drives, unread = _read_drives(system)
    if unread and not drives:
        raise unread
    return [
        Medium(media_types=drive.media_types, inserted=not drive.is_empty, image=next(iter(drive.image_names), None))
        for drive in drives
    ]


def _drives_of(drives: Sequence[Drive], kinds: Collection[str]) -> list[Drive]:
    return [drive for drive in drives if any(kind in kinds for kind in drive.kinds)]


def _read_drives(system: System) -> tuple[list[Drive], Exception | None]:
    """Return the virtual drives of the system, then its managers'; and the error that may hide more of them for now."""
    reader = system.reader()
    drives: dict[str, Drive] = {}
    for holder in (system.document, *_managers(reader, system)):
        # The first by name: an iDRAC 10 lists 2 before 1, and boots from 1 (dell/iDRAC-Redfish-Scripting#324).
        links = sorted(reader.links(holder.get("VirtualMedia"))[:_MAX_DRIVES], key=lambda link: natural(path_of(link)))
        for link in links:
            path, document = path_of(link), reader.get(link)
            if path and document and not is_absent(document):
                drives.setdefault(path, Drive(system, path, document))
    return list(drives.values()), reader.error if is_temporary(reader.error) else None


def _managers(reader: Reader, system: System) -> Iterator[Document]:
    """Yield the managers of the system; if it names none and is the only system, those of the service."""
    own_managers = mapping(system.document.get("Links")).get("ManagedBy")
    managers = list(reader.resources(own_managers, _MAX_MANAGERS))
    root = mapping(system.root.json) if system.root else {}
    if not managers and len(reader.links(root.get("Systems"))) == 1:
        managers = list(reader.members(root.get("Managers"), _MAX_MANAGERS))
    yield from managers


def _public_url(url: str) -> str:
    """Return a URL as it may be in logs and messages: the URL of the parameters contains a key."""
    return one_line(without_disk_key(without_secrets(url)), _MAX_SHOWN_CHARACTERS)


def is_same_image(shown: str, url: str) -> bool:
    """Whether what a BMC shows is the image with this URL: it may leave out, mask, or rewrite parts of it."""
    (host, path), (our_host, our_path) = _place(shown), _place(url)
    if not path or not our_path:
        return False
    if not host and "/" not in path.strip("/"):  # the file name only
        return path.rpartition("/")[2] == our_path.rpartition("/")[2]
    first, _, rest = path.lstrip("/").partition("/")
    if not host and first.partition(":")[0] == our_host:  # without a scheme
        host, path = our_host, f"/{rest}"
    is_cut = len(shown) >= _MIN_FIELD_CHARACTERS and our_path.startswith(path) and 2 * len(path) > len(our_path)
    if host == our_host and is_cut:
        return True
    if path != our_path and not (our_path.endswith(f"/{path.lstrip('/')}") and not host):
        return False
    return _may_be_same_host(host, our_host) or bool(_TOKEN.search(path))


def _place(image: str) -> tuple[str, str]:
    """Return host and path of an image, in lower case, without scheme, credentials, query and trailing slashes."""
    text = unquote(image.strip()).replace("\\", "/").lower()
    try:
        parts = urlsplit(text if "://" in text or text.startswith("//") else f"///{text.lstrip('/')}")
        return parts.hostname or "", re.sub(r"/+", "/", parts.path).rstrip("/")
    except ValueError:
        return "", text.rstrip("/")


def _may_be_same_host(host: str, our_host: str) -> bool:
    """Whether both may name the same host: one may be short, missing, or an address where the other is a name."""
    is_name, our_is_name = parse_address(host) is None, parse_address(our_host) is None
    if not host or not our_host or host == our_host or is_name != our_is_name:
        return True
    return is_name and ("." not in host or "." not in our_host) and host.split(".")[0] == our_host.split(".")[0]
