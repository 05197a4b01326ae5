"""The parts of a BMC's answers that a report may contain: an allow list of properties, and stand-ins for identifiers.

A property that is not listed is left out. A listed one keeps what its kind allows; serial numbers, MACs, names and
addresses become stand-ins of the same shape, the same one for the same value. So a report still shows duplicates,
padding, odd spellings and links. In paths, the names of parts stay if they consist of known words. Source of the lists:
DMTF's schemas (DSP8010), and what vendors call systems, managers, slots, drives and NICs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import urlsplit

from ferroscope.core.model import Document
from ferroscope_client.core.host_spelling import parse_address
from ferroscope_client.hardware.readings import says_nothing

_ANNOTATION: Final = re.compile(r"(\w+)@Redfish\.AllowableValues\Z")
_PATTERNS: Final = {
    "token": re.compile(r"[A-Za-z]{1,40}\Z"),
    "type": re.compile(r"#?[A-Za-z]{1,60}(?:\.v\d+_\d+_\d+)?\.[A-Za-z]{1,60}\Z"),
    "message": re.compile(r"[A-Za-z]{1,40}(?:\.\d{1,3}){0,4}\.[A-Za-z0-9]{1,80}\Z"),
    "text": re.compile(r"(?:[A-Za-z0-9 ._()/+,-]|(?<= )@(?= )){1,80}\Z"),
}
_ETAG: Final = re.compile(r'(W/)?("?)([^"]*)("?)\Z')
_HEX: Final = re.compile(r"[0-9A-Fa-f]")
_PAGE: Final = re.compile(r"\$(?:skip|top)=\d{1,6}(?:&\$(?:skip|top)=\d{1,6})?\Z")
_PADDING: Final = re.compile(r"[\s\0]*\Z")
_PARTS: Final = re.compile(r"[._:() -]+")
_NUMBERED: Final = re.compile(r"([A-Za-z]*?)(\d{0,3})\Z")
_HIDDEN: Final = "redacted"
_MIN_IDENTITY_CHARACTERS: Final = 4
# The kinds of values that identify something, and must not be in any other value either.
_IDENTITIES: Final = ("serial", "mac", "uuid", "host", "label", "address")
# A MAC or an IP address may look like small numbers and known words.
_ADDRESS_NUMBERS: Final = 4
_MAX_VALUE_CHARACTERS: Final = 4096
_MAX_NAME_CHARACTERS: Final = 80
_MAX_DIGITS: Final = 3
_MAX_DEPTH: Final = 12

# The kinds of values, which decide what of them remains, and the properties of this kind.
_PROPERTIES: Final = """
path: @odata.id Members@odata.nextLink target @Redfish.ActionInfo RelatedProperties
type: @odata.type
message: MessageId code
argument: MessageArgs
token: PowerState State Health HealthRollup SystemType ManagerType ChassisType ProcessorType ProcessorArchitecture
token: InstructionSet MediaType MediaTypes Protocol ConnectedVia TransferProtocolType TransferMethod LinkStatus
token: BootSourceOverrideEnabled BootSourceOverrideTarget BootSourceOverrideMode LastState ResetType Severity
token: MessageSeverity SupportedApplyTimes AllowableValues DataType DurableNameFormat AddressOrigin
text: RedfishVersion Vendor Product Manufacturer Model FirmwareVersion BiosVersion Version Revision
name: Id Name MemberId
number: Members@odata.count Count TotalSystemMemoryGiB TotalCores TotalThreads MaxSpeedMHz SpeedMbps CapacityBytes
number: SessionTimeout PredictedMediaLifeLeftPercent RotationSpeedRPM CapableSpeedGbs CoreCount LogicalProcessorCount
number: MediaTypes@odata.count Drives@odata.count
flag: Inserted WriteProtected ServiceEnabled Required InterfaceEnabled FailurePredicted VerifyCertificate
serial: SerialNumber AssetTag SKU DurableName HttpBootUri
mac: MACAddress PermanentMACAddress
uuid: UUID ServiceEntryPointUUID
host: HostName FQDN UserName
address: Address
image: Image ImageName
etag: @odata.etag
object: Status Boot Actions #ComputerSystem.Reset #VirtualMedia.InsertMedia #VirtualMedia.EjectMedia Links ManagedBy
object: ManagerForServers Chassis Systems Managers SessionService Sessions UpdateService Members Drives Devices
object: Identifiers StorageControllers Parameters @Redfish.Settings SettingsObject error @Message.ExtendedInfo Bios
object: MemorySummary ProcessorSummary Processors Memory EthernetInterfaces Storage SimpleStorage VirtualMedia
object: BootProgress LogServices NetworkAdapters NetworkInterfaces Power Thermal IPv4Addresses IPv6Addresses
"""
_LINES: Final = [line.partition(": ") for line in _PROPERTIES.splitlines()]
_KINDS: Final = {name: kind for kind, _, names in _LINES for name in names.split()}

# Values of enumerations that are not only letters.
_OTHER_TOKENS: Final = "x86 x86-64 ARM-A32 ARM-A64 MIPS32 MIPS64 IA-64 RISC-V PowerISA U.2 M.2"
_TOKENS: Final = frozenset(_OTHER_TOKENS.split())

# The words that names of parts consist of; numbers of up to three digits may follow each. Words that people use in the
# names of hosts are missing, such as node, rack or server.
_PART_WORDS: Final = """
redfish v odata metadata systems managers chassis sessionservice sessions updateservice firmwareinventory
members actions settings sd self bios memory processors storage simplestorage drives volumes controllers
virtualmedia ethernetinterfaces networkinterfaces networkadapters networkports ports logservices entries power
thermal powersupplies sensors pciedevices bootoptions resetactioninfo computersystem reset insertmedia
ejectmedia session collection rootservice interface interfaces system manager bmc idrac irmc ilo xcc embedded
integrated internal external direct enclosure backplane bay slot socket cpu gpu dpu fpga dimm nic port
partition disk drive raid ahci sata sas nvme pcie scsi boss hba controller rdoc ext remote cd dvd usb hd hdd
ssd floppy removabledisk removable usbstick virtual physical logical volume hgx dgx baseboard motherboard riser
mezz mezzanine ocp lom eth ens eno enp dedicated shared onboard bluefield processor ethernet network adapter
fan psu media username password
"""
_WORDS: Final = frozenset(_PART_WORDS.split())


class Redactor:
    """For one report. ``identities``: keep what identifies. ``secrets`` are in no report. ``hosts`` name the BMC."""

    def __init__(self, secrets: Iterable[str], hosts: Iterable[str] = (), *, identities: bool = False) -> None:
        self._secrets = [secret for secret in secrets if secret]
        self._identities = identities
        self._numbers: dict[str, dict[str, int]] = {}
        for host in hosts:
            self._host(host)

    def path(self, text: str) -> str:
        """Return a path of the service, with stand-ins for the names of parts that are not made of known words."""
        if self._identities:
            return self._without_secrets(text[:_MAX_VALUE_CHARACTERS])
        place, _, query = text[:_MAX_VALUE_CHARACTERS].partition("?")
        place, _, fragment = place.partition("#")
        redacted = "/".join(self._segment(segment) for segment in place.split("/"))
        redacted += f"#{'/'.join(self._segment(segment) for segment in fragment.split('/'))}" if fragment else ""
        return redacted + (f"?{query if _PAGE.match(query) else self._stand_in('query', query)}" if query else "")

    def document(self, value: Document, depth: int = 0) -> Document:
        """Return the parts of an answer, or of an object in it, that a report may contain."""
        kinds = [(key, member, _kind(key)) for key, member in list(value.items())[:200]]
        return {key: self._value(kind, member, depth + 1) for key, member, kind in kinds if kind is not None}

    def headers(self, headers: Iterable[tuple[str, str]], host: str) -> dict[str, str]:
        """Return the headers that tell how to talk to the service; ``host`` is where it was reached."""
        kept = {}
        for name, value in headers:
            match name.lower():
                case "allow" | "retry-after":
                    kept[name] = value if re.fullmatch(r"[A-Z0-9, ]{1,80}", value) else _HIDDEN
                case "etag":
                    kept[name] = self._etag(value)
                case "content-type":
                    kept[name] = value.partition(";")[0] if re.match(r"[a-z]+/[a-z+.-]{1,40}(;|$)", value) else _HIDDEN
                case "location":
                    kept[name] = self._location(value, host)
        return kept

    def remove_identities(self, report: Any) -> Any:
        """Return a finished report without any word that identified something elsewhere in it, as a second check."""
        if isinstance(report, dict):
            return {key: self.remove_identities(value) for key, value in report.items()}
        if isinstance(report, list):
            return [self.remove_identities(value) for value in report]
        return self._hide_identities(report) if isinstance(report, str) else report

    def _hide_identities(self, text: str) -> str:
        text = self._without_secrets(text)
        if self._identities:
            return text
        folded, digits = text.casefold(), "".join(_HEX.findall(text)).casefold()
        for kind in _IDENTITIES:
            words = digits if kind == "mac" else folded
            inside = [name for name in self._numbers.get(kind, ()) if len(name) >= _MIN_IDENTITY_CHARACTERS]
            if any(name in words and not is_words(name) for name in inside):
                return _HIDDEN
        return text

    def _without_secrets(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, _HIDDEN)
        return text

    def _value(self, kind: str, value: Any, depth: int) -> Any:
        if value is None or isinstance(value, bool) or depth > _MAX_DEPTH:
            return None if depth > _MAX_DEPTH else value
        if isinstance(value, list):
            return [self._value(kind, member, depth + 1) for member in value[:512]]
        if isinstance(value, dict):
            return self.document(value, depth)
        if isinstance(value, int | float):
            return value if kind == "number" else 0
        return self._text(kind, value) if kind not in ("number", "flag", "object") else _HIDDEN

    def _text(self, kind: str, value: str) -> str:
        value = value[:_MAX_VALUE_CHARACTERS]
        if kind == "path":
            return self.path(value)
        if kind in _PATTERNS:
            return value if not value or value in _TOKENS or _PATTERNS[kind].match(value) else _HIDDEN
        if kind == "name":
            return value if not value or is_words(value) or self._identities else self._stand_in("name", value)
        if kind == "argument":
            return value if value in _KINDS or is_words(value) else _HIDDEN
        if kind == "etag":
            return self._etag(value)
        return value if self._identities else self._identity(kind, value)

    def _identity(self, kind: str, value: str) -> str:
        padding = _PADDING.search(value)
        inner = value[: padding.start()] if padding else value
        if says_nothing(inner) or inner.strip().casefold() == "localhost" or not set(inner) - set("0 :-."):
            return value
        return self._replacement(kind, inner) + value[len(inner) :]

    def _replacement(self, kind: str, value: str) -> str:
        if kind == "mac":
            return self._mac(value)
        number = self._host(value) if kind == "host" else self._number(kind, value.casefold())
        if kind == "uuid":
            return f"00000000-0000-4000-8000-{number:012d}"
        if kind == "address":
            return f"2001:db8::{number:x}" if ":" in value else f"192.0.2.{number % 256}"
        if kind == "image":
            scheme, separator, _ = value.partition("://")
            ending = next((suffix for suffix in (".iso", ".img") if value.casefold().rstrip("/").endswith(suffix)), "")
            scheme = scheme if scheme in ("http", "https", "nfs") else "x"
            return f"{scheme}{separator and '://host'}/image-{number}{ending}"
        return f"{kind}-{number}"

    def _host(self, name: str) -> int:
        self._number("label", name.casefold().partition(".")[0])
        return self._number("host", name.casefold())

    def _mac(self, value: str) -> str:
        """Return another MAC with the same separators, case and number of digits."""
        count = len(_HEX.findall(value))
        number = self._number("mac", "".join(_HEX.findall(value)).casefold())
        digits = iter(f"02{number:0{max(count - 2, 1)}x}"[: max(count, 1)])
        other_mac = _HEX.sub(lambda _: next(digits, "0"), value)
        return other_mac.upper() if any(sign in "ABCDEF" for sign in value) else other_mac

    def _etag(self, value: str) -> str:
        matched = _ETAG.match(value)
        if matched is None:
            return _HIDDEN
        weak, before, inner, after = matched.groups()
        number = self._number("etag", inner)
        return f"{weak or ''}{before}{number if inner.isdigit() else f'etag-{number}'}{after}"

    def _location(self, value: str, host: str) -> str:
        try:
            parts = urlsplit(value)
        except ValueError:
            return _HIDDEN
        if not parts.netloc:
            return self.path(value)
        if parts.netloc == host:
            return f"{parts.scheme}://same-host{self.path(parts.path)}"
        host_kind = "other-address" if parse_address(parts.hostname or "") else "other-name"
        return f"{parts.scheme}://{host_kind}{self.path(parts.path)}"

    def _segment(self, text: str) -> str:
        return text if not text or text in _KINDS or is_words(text) else self._stand_in("id", text)

    def _stand_in(self, kind: str, value: str) -> str:
        return f"{kind}-{self._number(kind, value.casefold())}"

    def _number(self, kind: str, value: str) -> int:
        numbers = self._numbers.setdefault(kind, {})
        return numbers.setdefault(value, len(numbers) + 1)


def _kind(key: str) -> str | None:
    """Return the kind of a property's value; None if it must not be in a report."""
    if annotation := _ANNOTATION.match(key):
        return "token" if annotation[1] in _KINDS else None
    return _KINDS.get(key)


def is_words(text: str) -> bool:
    """Whether a name is a small number, or consists of known words and few small numbers."""
    if len(text) > _MAX_NAME_CHARACTERS:
        return False
    parts = "".join(map(_part, _PARTS.split(text.lstrip("#$").rstrip(")"))))
    if "x" in parts:
        return False
    return (parts == "n" and len(text) <= _MAX_DIGITS) or ("w" in parts and "n" * _ADDRESS_NUMBERS not in parts)


def _part(text: str) -> str:
    """Return w for a word, n for a number (perhaps after a letter), x for anything else."""
    matched = _NUMBERED.match(text)
    if matched is None or (len(matched[1]) > 1 and matched[1].casefold() not in _WORDS):
        return "x"
    return "w" if len(matched[1]) > 1 or matched[1].casefold() == "v" else "n"
