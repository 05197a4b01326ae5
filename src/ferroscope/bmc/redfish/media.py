"""Virtual media of a Redfish system: which drive takes the ramdisk's image, and whether it is really in there.

The drives of the system and of its managers are candidates (dell/terraform-provider-redfish#331,
lenovo/python-redfish-lenovo#21). A command is believed if the BMC shows its effect; until then it is given time, and
then the next drive is tried. Our medium is recognized by host and path, because BMCs rewrite what they show
(ansible-collections/community.general#6969, #3042). Foreign media are never ejected without a word.
"""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NoReturn
from urllib.parse import unquote, urlsplit

import structlog
from sushy import exceptions

from ferroscope.bmc.redfish import tasks
from ferroscope.bmc.redfish.boot import set_boot_device
from ferroscope.bmc.redfish.failures import TaskFailedError, is_temporary
from ferroscope.bmc.redfish.reader import Reader, is_absent, path_of
from ferroscope.bmc.redfish.resources import VirtualMedia
from ferroscope.contracts.bmc import BootDevice
from ferroscope.contracts.errors import BmcError
from ferroscope.contracts.images import Image
from ferroscope.core.callback_secret import without_disk_key
from ferroscope.core.model import Document
from ferroscope.core.reasons import Reason
from ferroscope.core.values import natural, one_line, without_secrets
from ferroscope.hardware.parts import mapping

_log = structlog.get_logger(__name__)

CDS: Final = ("cd", "dvd")
_DISKS: Final = ("usbstick", "floppy")
_MAX_DRIVES: Final = 32
_MAX_MANAGERS: Final = 4
# How often the BMC is looked at after an insertion before another drive is tried: some read the image first
# (ansible-collections/community.general#8279).
_MAX_LOOKS: Final = 8
_LOOK_PAUSE_SECONDS: Final = 1.0
# How often a drive may answer that it is not ready before another one is tried.
_PATIENT_TRIES: Final = 3
_MAX_SHOWN_CHARACTERS: Final = 120
# BMCs cut off what is longer than a field of theirs, none of which is shorter.
_MIN_FIELD_CHARACTERS: Final = 31
# Identifiers that nobody else has: of a node, a session or a file.
_TOKEN: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f]{16,}")
_INSERT: Final = "#VirtualMedia.InsertMedia"


class Drive:
    """A virtual drive as the BMC shows it."""

    def __init__(self, system: Any, path: str, document: Document) -> None:
        self.path = path
        self._system = system
        self._document = document

    @property
    def name(self) -> str:
        return one_line(str(self._document.get("Id") or self.path), _MAX_SHOWN_CHARACTERS)

    @property
    def service(self) -> str:
        return str(self._system._conn._url)

    @property
    def kinds(self) -> list[str]:
        """Return its media types; its name tells where it lists none."""
        if self.media_types:
            return [media_type.lower() for media_type in self.media_types]
        name = f"{self._document.get('Id')} {self._document.get('Name')}".lower()
        return [kind for kind in (*CDS, *_DISKS) if kind in name]

    @property
    def media_types(self) -> list[str]:
        """Return its media types in Redfish's spelling."""
        listed = self._document.get("MediaTypes")
        return [
            media_type
            for media_type in (listed if isinstance(listed, list) else [listed])
            if isinstance(media_type, str) and media_type
        ]

    @property
    def can_insert(self) -> bool:
        """Whether it takes media at all; some BMCs list slots that are for their web page only."""
        return self.has_action or (_INSERT not in self._actions and self._media()._allow_patch())

    @property
    def has_action(self) -> bool:
        """Whether it takes media by an action, and not by a write."""
        return bool(mapping(self._actions.get(_INSERT)).get("target"))

    @property
    def _actions(self) -> Document:
        return mapping(self._document.get("Actions"))

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
        """Whether one of these images is in there, as far as the BMC shows what is."""
        return self.has(urls) or (bool(urls) and not self.is_empty and not self.image_names)

    def insert(self, url: str) -> str:
        """Insert the image; return the task that does so, "" if it was done at once."""
        self._media().insert(url, next(iter(self.media_types), "CD"))
        task = str(self._system._conn.task)
        self.refresh()
        return task

    def is_running(self, task: str) -> bool:
        """Whether the task goes on; ``TaskFailedError``."""
        return tasks.is_running(self._system._conn, task)

    def eject(self) -> None:
        """Eject, and verify that the drive is empty: sushy reports most refusals as success."""
        self._media().eject_media()
        self.refresh()
        if not self.is_empty:
            message = f"the virtual drive {self.name} still has its medium after it was ejected"
            raise BmcError(message, transient=True, reason=Reason.BMC_REFUSED)

    def refresh(self) -> None:
        self._document = Reader(self._system._conn, patient=True).get(self.path) or self._document

    def _media(self) -> Any:
        return VirtualMedia(
            self._system._conn, self.path, redfish_version=self._system.redfish_version, root=self._system.root
        )


class Insertion:
    """Inserts an image and boots from it once, in as many tries as the call has: it knows what was sent already."""

    def __init__(self, image: Image, mode: str | None) -> None:
        self._image = image
        self._mode = mode
        self._looks: dict[tuple[str, str], int] = {}
        self._tasks: dict[tuple[str, str], str] = {}
        self._tries = 0
        self._unread: Exception | None = None  # what may be readable later, where a drive may be
        self._https: dict[str, str] = {}  # of those that were refused by http
        self._busy: Counter[tuple[str, str]] = Counter()

    @property
    def has_started(self) -> bool:
        """Whether an image was sent already."""
        return bool(self._looks)

    def run(self, system: Any) -> str | None:
        """Insert the image, and the ramdisk's parameters if there is a second drive; return a remark, or None."""
        drives = self.drives(system)
        cd = self.put(drives, CDS, self._image.iso) or self.raise_missing("a virtual CD drive", system)
        remark = None
        if self._image.parameters:
            iso = self._image.spellings(self._image.iso)
            others = [
                drive
                for drive in drives
                if drive.path != cd.path and not drive.has(iso) and not drive.may_have(self._image.keep)
            ]
            if self.put(others, _DISKS, self._image.parameters) is None:
                remark = "no virtual drive for the ramdisk's parameters; the image must contain them"
        set_boot_device(system, BootDevice.CDROM, persistent=False, mode=self._mode)
        return remark

    def drives(self, system: Any) -> list[Drive]:
        """Return the drives; after a few tries without those that cannot be read."""
        self._tries += 1
        drives, self._unread = read_drives(system, patient=self._tries < _PATIENT_TRIES)
        return drives

    def raise_missing(self, attribute: str, system: Any) -> NoReturn:
        """Raise that there is no such drive, or what has hidden it."""
        raise self._unread or exceptions.MissingAttributeError(attribute=attribute, resource=system.path)

    def put(self, drives: list[Drive], kinds: tuple[str, ...], url: str) -> Drive | None:
        """Return the drive that the image is in now, None if there is no such drive; by https if http is refused."""
        tried_url = self._https.get(url, url)
        try:
            return self._put(drives, kinds, tried_url)
        except exceptions.HTTPError as exc:
            if urlsplit(tried_url).scheme != "http" or isinstance(exc, exceptions.AccessError) or is_temporary(exc):
                raise
            secure = self._image.secure.get(url)
            if not secure:
                exc.hint = " an image by http, as those do that take https only: give it an https URL"
                raise
            self._https[url] = secure
            return self._put(drives, kinds, secure)

    def _put(self, drives: list[Drive], kinds: tuple[str, ...], url: str) -> Drive | None:
        able = {drive.path: drive for kind in kinds for drive in drives if kind in drive.kinds}.values()
        if (ours := next((drive for drive in able if self._is_ours(drive, url)), None)) is not None:
            return ours
        usable = [drive for drive in able if not drive.may_have(self._image.keep)]
        if able and not usable:
            raise BmcError(
                f"the virtual drive {(first := next(iter(able))).name} has an image that was attached through the API: "
                f"{', '.join(map(_public_url, first.image_names))}; detach it before the inspection",
                transient=False,
                reason=Reason.BMC_REFUSED,
            )
        if (present := next((drive for drive in usable if drive.has([url])), None)) is not None:
            return present
        refusal: Exception | None = None
        for drive in sorted(usable, key=lambda drive: (not drive.is_empty, not drive.has_action)):
            if self._looks.get((drive.path, url), 0) >= _MAX_LOOKS or not drive.can_insert:
                continue
            may_pass = refusal is not None and (is_temporary(refusal) or bool(self._image.secure.get(url)))
            if may_pass and not drive.is_empty:
                continue  # for a BMC that may only be busy, or want https, no foreign medium is ejected
            try:
                return self._insert(drive, url)
            except exceptions.AccessError:
                raise  # what the account may not do with one, it may not do with another
            except (exceptions.HTTPError, TaskFailedError) as exc:
                self._busy[drive.path, url] += is_temporary(exc)
                if is_temporary(exc) and self._busy[drive.path, url] < _PATIENT_TRIES:
                    raise
                refusal = exc  # perhaps another one takes it
        if refusal is not None:
            raise refusal
        if any(key for key in self._looks if key[1] == url):
            message = f"the BMC accepted {_public_url(url)} as virtual media, and never inserted it; can it be read"
            raise BmcError(f"{message} from the BMC's network?", transient=False, reason=Reason.BMC_REFUSED)
        return None

    def _insert(self, drive: Drive, url: str) -> Drive:
        key = (drive.path, url)
        if key not in self._looks:
            if not drive.is_empty:
                medium = ", ".join(map(_public_url, drive.image_names)) or "a medium without a name"
                drive.eject()
                address = urlsplit(drive.service).hostname
                _log.warning(
                    "ejected a foreign medium from a virtual drive", bmc=address, drive=drive.name, medium=medium
                )
            self._tasks[key] = drive.insert(url)
        self._looks[key] = self._looks.get(key, 0) + 1
        if self._is_ours(drive, url):
            return drive
        if self._goes_on(drive, key):
            self._looks[key] -= 1
        message = f"the BMC accepted the image, and does not show it in the virtual drive {drive.name}"
        raise BmcError(message, transient=True, reason=Reason.BMC_REFUSED, pause=_LOOK_PAUSE_SECONDS)

    def _is_ours(self, drive: Drive, url: str) -> bool:
        """Whether the drive, which was empty, has a medium since the BMC accepted ours, whatever it shows of it."""
        return (drive.path, url) in self._looks and not drive.is_empty

    def _goes_on(self, drive: Drive, key: tuple[str, str]) -> bool:
        """Whether the BMC says that it is still inserting; ``TaskFailedError`` if it has given up."""
        try:
            goes_on = bool(self._tasks[key]) and drive.is_running(self._tasks[key])
        except TaskFailedError:
            self._looks[key] = _MAX_LOOKS
            raise
        if not goes_on:
            self._tasks[key] = ""
        return goes_on


def eject(system: Any, image: Image, *, patient: bool = True) -> bool:
    """Eject what was inserted; other media are left alone. Return whether something was."""
    ours = image.urls
    ejected, nameless = False, []
    drives, unread = read_drives(system, patient=patient)
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


def read_drives(system: Any, *, patient: bool = True) -> tuple[list[Drive], Exception | None]:
    """Return the virtual drives of the system, then those of its managers; and what may hide more of them, for now."""
    reader, resource = Reader(system._conn, patient=patient), mapping(system.json)
    holders = [resource, *_managers(reader, system)]
    drives: dict[str, Drive] = {}
    for holder in holders:
        # The first by name: an iDRAC 10 lists 2 before 1, and boots from 1 (dell/iDRAC-Redfish-Scripting#324).
        links = sorted(reader.links(holder.get("VirtualMedia"))[:_MAX_DRIVES], key=lambda link: natural(path_of(link)))
        for link in links:
            path, document = path_of(link), reader.get(link)
            if path and document and not is_absent(document):
                drives.setdefault(path, Drive(system, path, document))
    return list(drives.values()), reader.error if reader.error and is_temporary(reader.error) else None


def _managers(reader: Reader, system: Any) -> Iterator[Document]:
    """Yield the managers of the system; those of the service if it says none, and has no other system."""
    own_managers = mapping(mapping(system.json).get("Links")).get("ManagedBy")
    managers = list(reader.resources(own_managers, _MAX_MANAGERS))
    root = mapping(system.root.json) if system.root else {}
    if not managers and len(reader.links(root.get("Systems"))) == 1:
        managers = list(reader.members(root.get("Managers"), _MAX_MANAGERS))
    yield from managers


def _public_url(url: str) -> str:
    """Return a URL as it may be in logs and messages: that of the parameters has a key in it."""
    return one_line(without_disk_key(without_secrets(url)), _MAX_SHOWN_CHARACTERS)


def is_same_image(shown: str, url: str) -> bool:
    """Whether what a BMC shows is the image with this URL: it may leave out, mask, or rewrite parts of it."""
    (host, path), (our_host, our_path) = _place(shown), _place(url)
    if not path or not our_path:
        return False
    name, our_name = path.rpartition("/")[2], our_path.rpartition("/")[2]
    if not host and "/" not in path.strip("/"):
        return name == our_name  # the file name only
    first, _, rest = path.lstrip("/").partition("/")
    if not host and first.partition(":")[0] == our_host:  # without a scheme
        host, path = our_host, f"/{rest}"
    if (
        host == our_host
        and len(shown) >= _MIN_FIELD_CHARACTERS
        and our_path.startswith(path)
        and 2 * len(path) > len(our_path)
    ):
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
    if not host or not our_host or host == our_host or _is_ip(host) != _is_ip(our_host):
        return True
    return (
        not _is_ip(host) and ("." not in host or "." not in our_host) and host.split(".")[0] == our_host.split(".")[0]
    )


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
