"""Where a BMC is: decides whether two nodes have the same BMC, regardless of how their addresses are spelled. Pure.

A place is a protocol, a host, a port and a system. The port is that of the URL or the field, or else the usual one.
Nothing is resolved here: callers supply the addresses that workers have stored.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterable, Iterator
from typing import Final, Generic, TypeVar
from urllib.parse import SplitResult, unquote, urldefrag, urlsplit

import msgspec

from ferroscope_client.core import mac_addresses, values
from ferroscope_client.core.host_spelling import (
    MAX_HOST_LENGTH,
    canonical_host,
    parse_address,
    refusal_of_host,
    refusal_of_url,
    refusal_of_urls,
)
from ferroscope_client.core.node import Document

ALLOW_SHARED: Final = "allow_shared_bmc"
"""The field of ``driver_info`` by which a node says that it shares its BMC on purpose."""

_REDFISH: Final = "redfish_address"
_IPMI: Final = "ipmi_address"
_IMAGE: Final = "deploy_iso"
_SCHEME_PORTS: Final = {"https": 443, "http": 80}
_FIELD_PORTS: Final = {_REDFISH: 443, _IPMI: 623}
_USUAL_PORTS: Final = frozenset({*_SCHEME_PORTS.values(), *_FIELD_PORTS.values()})
# The fields that name one of several machines behind a BMC. The first field that is set counts.
_SYSTEM_ENDINGS: Final = ("_system_id", "_node", "_outlet")
_THIS_HOST: Final = frozenset({"127.0.0.1", "::1"})
_IPMI_HOST: Final = re.compile(r"[A-Za-z0-9_.:%-]{1,255}\Z")
# Of Redfish, and what leads to it.
_SERVICE_PATH: Final = re.compile(
    r"(?P<system>/redfish/v1/systems/[^/]+)/?\Z|(?:/redfish(?:/v1(?:/systems)?)?)?/*\Z", re.IGNORECASE
)
_PORT: Final = re.compile(r"(0x[0-9a-f]{1,8}|[0-9]{1,9})\Z", re.ASCII | re.IGNORECASE)
_ADVICE: Final = (
    "two nodes with one BMC would fight over the power of one machine; correct one of the addresses, or "
    f"name the system of each (redfish_system_id), or set driver_info/{ALLOW_SHARED} to true (--allow-shared-bmc)"
)

Owner = TypeVar("Owner")


class Place(msgspec.Struct, frozen=True):
    """``system``: which machine behind the BMC, "" if none is named. ``addresses``: those that the host has."""

    protocol: str
    host: str
    port: int | None
    system: str = ""
    addresses: frozenset[str] = frozenset()

    @property
    def title(self) -> str:
        """The place as people write it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port is None or self.port in _USUAL_PORTS else f":{self.port}"
        return f"{host if port else self.host}{port}" + (f" (system {self.system})" if self.system else "")


def places(info: Document, resolved: Collection[str] = ()) -> tuple[Place, ...]:
    """Return where the BMC is: a place for each of its addresses.

    ``resolved``: the addresses that a worker has stored for the node's BMC.
    """
    located = [(field, canonical_host(host)) for field, host in hosts(info)]
    literal = {host for _, host in located if parse_address(host) is not None}
    learned = frozenset(canonical_host(text) for text in resolved if parse_address(text) is not None) - literal
    own_places = []
    for field, host in located:
        addresses = _THIS_HOST if host == "localhost" else frozenset({host}) if host in literal else learned
        protocol = field.removesuffix("_address")
        own_places.append(Place(protocol, host, _port(info, protocol), _system(info, protocol), addresses))
    return tuple(own_places)


def exclusive_places(info: Document, resolved: Collection[str] = ()) -> tuple[Place, ...]:
    """Return the places that no other node may have: none if the node says that it shares its BMC."""
    return () if is_shared_on_purpose(info) else places(info, resolved)


def same_place(first: Place, second: Place) -> bool:
    """Return whether the same machine answers at both.

    Different protocols on one host are one BMC, unless both name different systems. So are HTTP and HTTPS on their
    usual ports.
    """
    if first.host != second.host and not first.addresses & second.addresses:
        return False
    if first.protocol == second.protocol and first.port != second.port and not _are_both_of_the_web(first, second):
        return False
    return first.system == second.system or not first.system or not second.system


def _are_both_of_the_web(first: Place, second: Place) -> bool:
    return {first.port, second.port} <= set(_SCHEME_PORTS.values())


def first_shared(own: Iterable[Place], their_places: Iterable[Place]) -> Place | None:
    """Return the first of its places that another node has, too; None if there is none."""
    their_places = tuple(their_places)
    return next((place for place in own if any(same_place(place, their_place) for their_place in their_places)), None)


def is_shared_on_purpose(info: Document) -> bool:
    """Return whether the node says that it shares its BMC."""
    return values.parse(str(info.get(ALLOW_SHARED, ""))) is True


def shared_message(place: Place, where: str) -> str:
    """Return why a node is refused whose BMC another node has, too; ``where``: "is that of node X"."""
    return f"the BMC {place.title} {where}: {_ADVICE}"


def in_inbox_message(place: Place, node: str, *, or_else: str = "") -> str:
    """Return why a node is refused whose BMC a node in the inbox has; ``or_else``: what else helps."""
    approve = f"if it is this machine, approve it: ferroscope node approve {node}{or_else}"
    return f"{shared_message(place, f'is in the inbox as {node}')}; {approve}"


class PlaceIndex(Generic[Owner]):
    """Finds the owners of BMCs at a place, without comparing all with all."""

    def __init__(self) -> None:
        self._owners: dict[str, list[tuple[Place, Owner]]] = {}

    def add(self, owner: Owner, own: Iterable[Place]) -> None:
        """Record where the BMC of the owner is."""
        for place in own:
            for key in {place.host, *place.addresses}:
                self._owners.setdefault(key, []).append((place, owner))

    def owners(self, own: Iterable[Place]) -> Iterator[tuple[Place, Owner]]:
        """Yield each of these places with an owner that has it."""
        for place in own:
            for key in sorted({place.host, *place.addresses}):
                for owner_place, owner in self._owners.get(key, ()):
                    if same_place(place, owner_place):
                        yield place, owner


def _port(info: Document, protocol: str) -> int | None:
    """Return the port to which the driver connects, None if it is unknown."""
    address = str(info[f"{protocol}_address"]).strip()
    try:
        parts = urlsplit(address if "//" in address else f"//{bracketed_address(address)}")
        port = parts.port
    except ValueError:
        return None
    field = f"{protocol}_address"
    field_port = None if field == _REDFISH else _port_number(info.get(f"{protocol}_port"))  # the URL has it
    return port or _SCHEME_PORTS.get(parts.scheme) or field_port or _FIELD_PORTS.get(field)


def _port_number(value: object) -> int | None:
    """Return the number of a port, as drivers read it; None if it is not a number."""
    text = str(int(value) if isinstance(value, float) and value.is_integer() else value).strip()
    if isinstance(value, bool) or not _PORT.match(text):
        return None
    number = int(text, 16) if text.lower().startswith("0x") else int(text)
    return number if 0 < number < 65536 else None


def _system(info: Document, protocol: str) -> str:
    systems = (info.get(f"{protocol}{ending}") for ending in _SYSTEM_ENDINGS)
    text = next((str(name).strip() for name in systems if name not in (None, "")), "")
    if not text and f"{protocol}_address" == _REDFISH:
        text = redfish_system(str(info.get(_REDFISH)))
    return unquote(urldefrag(text)[0].partition("?")[0]).rstrip("/").rpartition("/")[2]


# Checks that need no network.


def refusal(info: Document) -> str:
    """Return why a host in the addresses or URLs might be read as another address; "" if none might."""
    for field, host in address_hosts(info):
        if why := refusal_of_host(host):
            return f"{field}: {why}"
    image = info.get(_IMAGE)
    if isinstance(image, str) and image and not values.is_uuid(image) and (why := refusal_of_url(image)):
        return f"{_IMAGE}: {why}"
    return refusal_of_urls(info)


def problem(info: Document) -> str:
    """Return why the addresses or URLs cannot be right; "" if they may be. A missing field is not a problem here."""
    if why := refusal(info):
        return why
    if (address := str(info.get(_REDFISH) or "")) and (why := redfish_problem(address)):
        return why
    if (address := str(info.get(_IPMI) or "")) and (why := ipmi_problem(address)):
        return why
    port = info.get("ipmi_port")
    return "" if port in (None, "") or _port_number(port) else "ipmi_port must be a number from 1 to 65535"


def incomplete(info: Document) -> str:
    """Return what a login to the BMC lacks; "" if it is complete, or if there is no login."""
    for field, missing in MISSING_ADDRESS.items():
        login = field.removesuffix("_address")
        if any(info.get(f"{login}_{end}") for end in ("username", "password")) and info.get(field) in (None, ""):
            return missing
    return MISSING_USER if info.get("redfish_password") and not info.get("redfish_username") else ""


MISSING_ADDRESS: Final = {
    _REDFISH: "redfish_address is missing in driver_info; set it to the URL of the Redfish service",
    _IPMI: "ipmi_address is missing in driver_info; set it to the IP address or host name of the BMC",
}
MISSING_USER: Final = "redfish_password is set, but redfish_username is not"


def ipmi_problem(address: str) -> str:
    """Return why a driver cannot use this ``ipmi_address``; "" if it can."""
    host = address.strip().strip("[]")
    if why := refusal_of_host(host):
        return f"{_IPMI}: {why}"
    is_host = _IPMI_HOST.match(host) and not host.startswith("-") and (":" not in host or parse_address(host))
    return "" if is_host else "invalid ipmi_address: expected an IP address or a host name; set the port in ipmi_port"


def redfish_problem(address: str) -> str:
    """Return why a driver cannot use this ``redfish_address``; "" if it can."""
    try:
        parts = redfish_url(address)
    except ValueError as exc:
        return f"invalid URL in redfish_address: {exc}"
    if why := refusal_of_host(parts.hostname or ""):
        return f"{_REDFISH}: {why}"
    address_alone, _, zone = str(parse_address(parts.hostname or "")).partition("%")
    if zone[:1].isdigit():  # HTTP clients read it as an escape (psf/requests#5775)
        return f"{_REDFISH}: give the interface of {address_alone} by its name, such as {address_alone}%eth0"
    is_spaced = len(address.split()) > 1
    if parts.scheme not in ("http", "https") or not parts.hostname or is_spaced or parts.query or parts.fragment:
        return "invalid URL in redfish_address: expected https://HOST[:PORT] or http://HOST[:PORT]"
    if parts.username is not None or parts.password is not None:
        return "redfish_address must not contain credentials; use redfish_username and redfish_password"
    if not _SERVICE_PATH.match(parts.path):
        if "://" not in address and not parts.path.startswith("/redfish"):
            return f"invalid URL in redfish_address: {address[:80]!r} is not https://HOST[:PORT] or http://HOST[:PORT]"
        option = "redfish_root_prefix"
        if parts.path.lower().startswith("/redfish/v1/"):  # such as that of a manager
            option = "redfish_system_id to the path of a system, such as /redfish/v1/Systems/1,"
        return f"redfish_address must not have a path ({parts.path[:80]}); set {option} instead"
    return ""


def redfish_system(address: str) -> str:
    """Return the path of the system that a ``redfish_address`` ends with, "" if it names none.

    Many people put it there (metal3-io/baremetal-operator#2418, tinkerbell/rufio#313).
    """
    with contextlib.suppress(ValueError):
        named = _SERVICE_PATH.match(redfish_url(address).path)
        return (named and named["system"]) or ""
    return ""


def redfish_url(address: str) -> SplitResult:
    """Return the parts of the URL, https if it has no scheme; ``ValueError`` says what is wrong with host or port."""
    address = bracketed_address(address.strip())
    try:
        parts = urlsplit(address if "://" in address else f"https://{address}")
    except ValueError:
        raise ValueError("brackets must contain an IPv6 address, as in https://[2001:db8::1]") from None
    host = parts.netloc.rpartition("@")[2]
    if parse_address(host) is not None and ":" in host:
        raise ValueError(f"write an IPv6 address in brackets: {parts.scheme}://[{host}]")
    try:
        port = parts.port
    except ValueError:
        port = 0
    if port == 0:
        raise ValueError(f"the port {host.rpartition(':')[2][:20]!r} is not a number from 1 to 65535")
    return parts


# The BMC's location, the BMC it is bridged through, and how its identity and the connection are secured.
_PLACE: Final = re.compile(
    r"_(?:address|port|host|url|verify_ca|auth_type|protocol_version|root_prefix|tls_minimum_version|tls_ciphers"
    r"|cipher_suite|bridging|(?:transit|target|local)_\w{1,32}|(?:transit|target)_channel)\Z"
)


def is_place(name: str) -> bool:
    """Whether the field defines the BMC's location or its identity check."""
    return _PLACE.search(name) is not None


# Addresses on the bus behind a BMC, such as 0x82, are not hosts. Neither is a MAC address, which other tools may store.
_NOT_HOSTS: Final = re.compile(r"_(?:transit|target|local)_address\Z")


def address_hosts(info: Document) -> Iterator[tuple[str, str]]:
    """Yield field and host of every ``*_address`` that should name a host."""
    for key, value in info.items():
        if not key.endswith("_address") or _NOT_HOSTS.search(key) or isinstance(value, bool):
            continue
        text = str(value).strip() if isinstance(value, str | int) else ""  # YAML reads digits as a number
        host = None if mac_addresses.normalized_mac(text) else _host(text)
        if host and len(host) <= MAX_HOST_LENGTH:
            yield key, host


def hosts(info: Document) -> Iterator[tuple[str, str]]:
    """Yield field and host of every ``*_address``, except that of a BMC that is bridged through another one."""
    for key, host in address_hosts(info):
        if key != "ipmi_address" or info.get("ipmi_bridging") not in ("single", "dual"):
            yield key, host


def is_address(host: str) -> bool:
    """Whether the host is an IP address, not a name."""
    return parse_address(host) is not None


def bracketed_address(address: str) -> str:
    """Return the address as a URL has it: an IPv6 address in brackets."""
    return f"[{address}]" if ":" in address and is_address(address) else address


def _host(value: str) -> str | None:
    if is_address(value.strip("[]")):
        return value.strip("[]")
    try:
        parts = urlsplit(value if "//" in value else f"//{value}")
        has_port = parts.port != 0  # an invalid one raises
    except ValueError:
        return None
    return parts.hostname if has_port else None
