"""Finds BMCs in networks and, with credentials, the machines behind them.

Credentials are sent only to addresses of the networks to scan, over TLS with a verified certificate unless the operator
decides otherwise, and only to a server that identified itself as a Redfish service. Everything else is probed without
credentials.
"""

from __future__ import annotations

import ipaddress
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any, Final

import msgspec

from ferroscope.config.options import Settings
from ferroscope.contracts.bmc import Bmc, OutOfBand, SeveralSystems
from ferroscope.contracts.errors import BmcError
from ferroscope.contracts.store import StopFlag
from ferroscope.contrib.dcim.bmc_scan import probe
from ferroscope.contrib.dcim.bmc_scan.probe import IpmiAnswer, RedfishRoot
from ferroscope.core.model import Document, Node
from ferroscope_client.core.host_spelling import refusal_of_host

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_NOBODY: Final = "00000000-0000-0000-0000-000000000000"
# More than any chassis has.
_MAX_SYSTEMS: Final = 64


class ScanError(ValueError):
    """These networks must not be scanned."""


class ScanPlan(msgspec.Struct, frozen=True):
    """``seconds``: for each probe; ``rate``: addresses begun per second, at most ``parallel`` at a time."""

    networks: tuple[Network, ...]
    redfish_port: int = 443
    ipmi_port: int = 623
    seconds: float = 3.0
    rate: float = 50.0
    parallel: int = 32

    def addresses(self) -> Iterator[str]:
        """Yield each address once, also the first and last of a network: it may be a part of a larger one."""
        seen = set()
        for network in self.networks:
            for address in network:
                if address not in seen:
                    seen.add(address)
                    yield str(address)


class ScanLogin(msgspec.Struct, frozen=True):
    """``properties``: of the driver redfish, with the password; ``stored``: the same with its reference."""

    properties: Document
    stored: Document

    def __repr__(self) -> str:
        return "ScanLogin(...)"


class ScannedMachine(msgspec.Struct, frozen=True):
    """A machine, or a BMC whose machines are unknown. ``error``: why the machine could not be read.

    ``driver``: "" if something answers at the address, but neither over Redfish nor over IPMI.
    """

    address: str
    protocol: str
    driver: str
    driver_info: Document
    vendor: str | None = None
    model: str | None = None
    inventory: Document = {}
    macs: tuple[str, ...] = ()
    error: str = ""


def networks(texts: Iterable[str], settings: Settings, *, limit: int, public: bool) -> tuple[Network, ...]:
    """Return the networks; ``ScanError`` if one is invalid, public, not allowed, or they are too large together."""
    allowed = tuple(ipaddress.ip_network(text) for text in settings.drivers.bmc_networks)
    chosen: list[Network] = []
    for text in texts:
        if why := refusal_of_host(text.partition("/")[0]):
            raise ScanError(f"invalid network {text[:80]!r}: {why}")
        try:
            network = ipaddress.ip_network(text)
        except ValueError as exc:
            raise ScanError(f"invalid network {text[:80]!r}: {exc}; expected, for example, 192.0.2.0/24") from None
        if network.is_multicast or network.is_unspecified:
            raise ScanError(f"{network} is not a network of hosts")
        if allowed and not any(_within(network, limit) for limit in allowed):
            raise ScanError(f"{network} is not in any of the networks in [drivers] bmc_networks")
        if not public and (network.network_address.is_global or network.broadcast_address.is_global):
            raise ScanError(f"{network} has public addresses; if they are yours, use --public")
        chosen.append(network)
    total = sum(network.num_addresses for network in chosen)
    if total > limit:
        raise ScanError(f"{total:,} addresses are more than {limit:,}; use smaller networks, or --max-addresses")
    return tuple(chosen)


def _within(network: Network, allowed: Network) -> bool:
    return network.version == allowed.version and network.subnet_of(allowed)  # type: ignore[arg-type]  # same version


def scan(
    plan: ScanPlan, drivers: Mapping[str, Bmc], login: ScanLogin | None, stop: StopFlag
) -> Iterator[tuple[str, list[ScannedMachine]]]:
    """Yield each address with its result, in the order of the answers."""
    pace = _Pace(plan.rate, stop)

    def look(address: str) -> list[ScannedMachine]:
        return _scan_address(plan, drivers, login, address) if pace.wait() else []

    pool = ThreadPoolExecutor(plan.parallel, thread_name_prefix="scan")
    try:
        running = {pool.submit(look, address): address for address in plan.addresses()}
        for future in as_completed(running):
            yield running[future], future.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


class _Pace:
    """Lets threads begin one after the other, at a limited rate."""

    def __init__(self, rate: float, stop: StopFlag) -> None:
        self._gap = 1.0 / rate
        self._stop = stop
        self._lock = threading.Lock()
        self._next = time.monotonic()

    def wait(self) -> bool:
        """Wait for the turn of this thread; return False if everything is to end."""
        with self._lock:
            now = time.monotonic()
            turn = self._next = max(self._next + self._gap, now)
        return not self._stop.wait(turn - now)


def _scan_address(
    plan: ScanPlan, drivers: Mapping[str, Bmc], login: ScanLogin | None, address: str
) -> list[ScannedMachine]:
    root = probe.redfish(address, plan.redfish_port, plan.seconds)
    if isinstance(root, RedfishRoot):
        return _redfish(plan, drivers, login, address, root)
    ipmi = probe.ipmi(address, plan.ipmi_port, plan.seconds)
    if ipmi is not None:
        return [_ipmi(plan, address, ipmi, root)]
    return [ScannedMachine(address, "", "", {"redfish_address": _url(plan, address)}, error=root)] if root else []


def _url(plan: ScanPlan, address: str) -> str:
    host = f"[{address}]" if ":" in address else address
    return f"https://{host}" + ("" if plan.redfish_port == 443 else f":{plan.redfish_port}")


def _ipmi(plan: ScanPlan, address: str, answer: IpmiAnswer, web: str) -> ScannedMachine:
    info: Document = {"ipmi_address": address}
    if plan.ipmi_port != 623:
        info["ipmi_port"] = plan.ipmi_port
    protocol = f"IPMI {answer.version}".strip()
    return ScannedMachine(address, protocol, "ipmi", info, vendor=answer.vendor, error=web)


def _redfish(
    plan: ScanPlan, drivers: Mapping[str, Bmc], login: ScanLogin | None, address: str, root: RedfishRoot
) -> list[ScannedMachine]:
    url = _url(plan, address)
    info = {"redfish_address": url} | ({} if login is None else login.stored)
    bare = ScannedMachine(address, f"Redfish {root.version}", "redfish", info, vendor=root.vendor, model=root.product)
    driver: object = drivers.get("redfish")
    if login is None or not isinstance(driver, OutOfBand) or not isinstance(driver, SeveralSystems):
        return [bare]
    bmc_node = Node(uuid=_NOBODY, driver="redfish", driver_info={"redfish_address": url} | login.properties)
    try:
        systems = list(driver.systems(bmc_node))[:_MAX_SYSTEMS]
    except BmcError as exc:
        return [msgspec.structs.replace(bare, error=str(exc))]
    return [_system(bare, driver, bmc_node, path) for path in systems] or [bare]


def _system(bare: ScannedMachine, driver: OutOfBand, bmc_node: Node, path: str) -> ScannedMachine:
    where = {"redfish_system_id": path}
    node = msgspec.structs.replace(bmc_node, driver_info=bmc_node.driver_info | where)
    info = bare.driver_info | where
    try:
        inventory = driver.inventory(node)
        inventory.pop("unread", None)
    except BmcError as exc:
        return msgspec.structs.replace(bare, driver_info=info, error=str(exc))
    vendor: Mapping[str, Any] = inventory.get("system_vendor") or {}
    return msgspec.structs.replace(
        bare,
        driver_info=info,
        inventory=inventory,
        vendor=vendor.get("manufacturer") or bare.vendor,
        model=vendor.get("product_name") or bare.model,
        macs=tuple(nic["mac_address"] for nic in inventory.get("interfaces", ())),
    )
