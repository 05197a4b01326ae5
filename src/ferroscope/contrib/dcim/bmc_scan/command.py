"""``ferroscope bmc scan``: the command, and its result for each machine."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click
import msgspec

from ferroscope.cli.service import config_option, settings_of
from ferroscope_client.cli.lookup import label
from ferroscope_client.cli.node.write import label_pair
from ferroscope_client.cli.output import Output, cloud_option, insecure_option, output_option, table, url_option
from ferroscope_client.cli.screen import track
from ferroscope_client.client import Client, Json, ServiceError, connect
from ferroscope_client.core import bmc_place
from ferroscope_client.core.bmc_place import PlaceIndex
from ferroscope_client.core.values import many
from ferroscope_client.errors import Exit, Failure

if TYPE_CHECKING:
    from rich.console import Console

    from ferroscope.config.options import Settings
    from ferroscope.contrib.dcim.bmc_scan.scan import ScanLogin, ScannedMachine, ScanPlan


class ScanResult(msgspec.Struct):
    """The result for a machine, for a BMC whose machines are unknown, or for an address where no BMC answers."""

    address: str
    protocol: str
    vendor: str | None
    model: str | None
    serial: str | None
    macs: list[str]
    result: str
    node: str | None = None
    detail: str = ""


@click.command(
    "scan",
    epilog="Exit code 0: all BMCs that were found are in the inbox or known. 1: some could not be added. 2: the "
    "networks must not be scanned.",
)
@click.argument("networks", nargs=-1, required=True, metavar="NETWORK...")
@click.option("--username", help="User name at the BMCs, to read models, serial numbers and MAC addresses.")
@click.option(
    "--reference", "password", metavar="secret://...", help="Reference to its password; never the password itself."
)
@click.option(
    "--verify-ca",
    default="true",
    show_default=True,
    help="As redfish_verify_ca: true, false, or the name of a CA file.",
)
@click.option("--label", "labels", type=label_pair, metavar="KEY[=VALUE]", multiple=True, help="Label of found nodes.")
@click.option("--rate", type=click.FloatRange(0.1, 1000), default=50, show_default=True, help="Addresses per second.")
@click.option("--parallel", type=click.IntRange(1, 256), default=32, show_default=True, help="Addresses at a time.")
@click.option("--timeout", type=click.FloatRange(0.1, 60), default=3, show_default=True, help="Seconds for a probe.")
@click.option("--max-addresses", type=click.IntRange(1, 65536), default=4096, show_default=True, help="Refuse more.")
@click.option("--redfish-port", type=click.IntRange(1, 65535), default=443, show_default=True, help="TCP port.")
@click.option("--ipmi-port", type=click.IntRange(1, 65535), default=623, show_default=True, help="UDP port.")
@click.option("--public", is_flag=True, help="Allow networks with public addresses.")
@click.option("--dry-run", is_flag=True, help="Only show the BMCs.")
@config_option
@url_option
@cloud_option
@insecure_option
@output_option
def scan(
    networks: tuple[str, ...],
    *,
    username: str | None,
    password: str | None,
    verify_ca: str,
    labels: tuple[tuple[str, str], ...],
    rate: float,
    parallel: int,
    timeout: float,
    max_addresses: int,
    redfish_port: int,
    ipmi_port: int,
    public: bool,
    dry_run: bool,
    files: tuple[str, ...],
    url: str | None,
    cloud: str | None,
    insecure_http: bool,
    fmt: str,
) -> None:
    """Find BMCs in NETWORK, such as 192.0.2.0/24, and add their machines to the inbox.

    Each address is asked without credentials: over Redfish, then over IPMI. With --username and --reference, the
    machines behind a Redfish service are read too. The password is sent only to addresses in NETWORK whose certificate
    is valid, or to all of them with --verify-ca false. It scans from this host; [drivers] bmc_networks of its
    configuration limits the networks.
    """
    from ferroscope.contrib.dcim.bmc_scan import scan as bmc_scan

    settings, out = settings_of(files), Output(fmt)
    try:
        chosen = bmc_scan.networks(networks, settings, limit=max_addresses, public=public)
    except bmc_scan.ScanError as exc:
        raise click.UsageError(str(exc)) from None
    stop = threading.Event()
    login = _login(settings, username, password, verify_ca, stop)
    plan = bmc_scan.ScanPlan(chosen, redfish_port, ipmi_port, timeout, rate, parallel)
    api = connect(url, cloud=cloud, insecure_http=insecure_http)
    results = [
        _result(api, fleet, machine, dict(labels), dry_run=dry_run)
        for fleet in (_EnrolledNodes(api),)
        for machine in _scan_networks(settings, plan, login, stop)
    ]
    results.sort(key=lambda result: (len(result.address), result.address, result.model or ""))
    out.show([msgspec.to_builtins(result) for result in results], lambda screen: _draw(screen, results))
    if not out.for_programs:
        total = sum(1 for _ in plan.addresses())
        counts = ", ".join(
            f"{number} {result}" for result, number in sorted(Counter(r.result for r in results).items())
        )
        out.say(f"{many(total, 'address', 'addresses')} scanned: {counts or 'no BMC found'}")
        if any(result.result == "in the inbox" for result in results):
            out.say("next: ferroscope node inbox, then: ferroscope node approve --all --suggested-names")
    if any(result.result == "failed" for result in results):
        raise click.exceptions.Exit(Exit.FAILURE)


def _login(
    settings: Settings, username: str | None, password: str | None, verify_ca: str, stop: threading.Event
) -> ScanLogin | None:
    from ferroscope.config.errors import SetupError
    from ferroscope.contracts.plugins import SecretSourceError
    from ferroscope.contrib.dcim.bmc_scan.scan import ScanLogin
    from ferroscope.runtime.wiring import build_resolver
    from ferroscope_client.core.passwords import is_reference

    if username is None and password is None:
        return None
    if username is None or password is None:
        raise click.UsageError("--username and --reference belong together")
    if not is_reference(password):
        raise click.UsageError(
            "--reference takes a reference such as secret://file/bmc/password, because others see command lines; "
            "see [secrets] sources"
        )
    try:
        resolver = build_resolver(settings, stop)
        if resolver is None:
            raise Failure("no secret sources are configured", advice="set [secrets] sources in the configuration")
        secret = resolver.resolve(password)
    except SetupError as exc:
        raise Failure(str(exc), advice=exc.advice) from None
    except SecretSourceError as exc:
        raise Failure(f"cannot resolve {password}: {exc}") from None
    common = {"redfish_username": username, "redfish_verify_ca": verify_ca}
    return ScanLogin(common | {"redfish_password": secret}, common | {"redfish_password": password})


def _scan_networks(
    settings: Settings, plan: ScanPlan, login: ScanLogin | None, stop: threading.Event
) -> Iterator[ScannedMachine]:
    """Yield the results."""
    from ferroscope.contrib.dcim.bmc_scan import scan as bmc_scan
    from ferroscope.runtime.externals import build_drivers, close_drivers

    enabled = msgspec.structs.replace(settings.drivers, enabled=("redfish",))
    drivers = build_drivers(msgspec.structs.replace(settings, drivers=enabled), stop) if login is not None else {}
    answers: Iterable[tuple[str, list[ScannedMachine]]] = bmc_scan.scan(plan, drivers, login, stop)
    try:
        for _, machines in track(answers, "Scanning", total=sum(1 for _ in plan.addresses())):
            yield from machines
    finally:
        stop.set()
        close_drivers(drivers)


class _EnrolledNodes:
    """The nodes by the places of their BMCs."""

    def __init__(self, api: Client) -> None:
        self._nodes: PlaceIndex[Json] = PlaceIndex()
        for node in api.pages("/v1/nodes", "nodes", fields=("uuid", "name", "driver_info")):
            self._nodes.add(node, bmc_place.places(node.get("driver_info") or {}))
        self.drivers = {driver["name"] for driver in api.get("/v1/drivers")["drivers"]}

    def find(self, machine: ScannedMachine) -> Json | None:
        """Return the node of this machine; any of this BMC, if either names no system."""
        return next((node for _, node in self._nodes.owners(bmc_place.places(machine.driver_info))), None)


def _result(
    api: Client, fleet: _EnrolledNodes, machine: ScannedMachine, labels: dict[str, str], *, dry_run: bool
) -> ScanResult:
    serial = (machine.inventory.get("system_vendor") or {}).get("serial_number")
    result = ScanResult(
        machine.address, machine.protocol, machine.vendor, machine.model, serial, list(machine.macs), "found"
    )
    result.detail = machine.error
    node = fleet.find(machine)
    if node is not None:
        return msgspec.structs.replace(result, result="known", node=label(node))
    if not machine.driver:
        return msgspec.structs.replace(result, result="not Redfish")
    if machine.driver not in fleet.drivers:
        detail = f"the driver {machine.driver} is not enabled; see [drivers] enabled"
        return msgspec.structs.replace(result, result="failed", detail=detail)
    if dry_run:
        return msgspec.structs.replace(result, result="would be added")
    body: dict[str, Any] = {"driver": machine.driver, "driver_info": machine.driver_info, "labels": labels}
    try:
        created = api.post("/v1/inbox", body | {"macs": list(machine.macs), "inventory": machine.inventory})
    except ServiceError as exc:
        if exc.status == 409:
            return msgspec.structs.replace(result, result="known", detail=exc.message)
        return msgspec.structs.replace(result, result="failed", detail=exc.message)
    return msgspec.structs.replace(result, result="in the inbox", node=created["uuid"])


def _draw(screen: Console, results: list[ScanResult]) -> None:
    if not results:
        return
    rows = [
        (
            result.address,
            result.protocol,
            result.vendor,
            result.model,
            result.serial,
            result.result,
            result.node,
            result.detail,
        )
        for result in results
    ]
    screen.print(table(("ADDRESS", "BMC", "VENDOR", "MODEL", "SERIAL", "RESULT", "NODE", "DETAIL"), rows))
