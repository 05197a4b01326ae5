"""``pxe_filter``: how fast the PXE filter loads and changes, how soon it closes, who opens next, what memory it takes.

In network namespaces of its own (it needs root), with the real nft and the real processes. What happens
in the filter process is timed here, with its own code; closing and opening are read from the kernel.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import click
import msgspec
import urllib3

from bench.client import VERSION
from bench.cycle import scratch
from bench.databases import database
from bench.figures import Figure
from bench.quantiles import Spread, spread
from bench.report import Report
from bench.service import service
from bench.usage import memory
from ferroscope.config.options import DatabaseSettings, Settings
from ferroscope.core.boot_macs import SetChange
from ferroscope.core.model import Port
from ferroscope.db.store import Store
from ferroscope.pxe_filter.backends.base import FilterRules
from ferroscope.pxe_filter.backends.nftables import NftablesFilter
from ferroscope.pxe_filter.sync import MacSync
from ferroscope.runtime.backend import open_backend
from ferroscope.runtime.system import SystemClock
from tests.support import examples
from tests.support.pxe.filtered import FilteredLab, is_open
from tests.support.pxe.host import BootHost
from tests.support.pxe.lab import Lab

_BATCH: Final = 5000
_LOOK_EVERY: Final = 0.02
_GIVE_UP: Final = 15.0


class Loads(msgspec.Struct, frozen=True):
    """Seconds for one load of ``macs`` MACs: reading them, and putting them into the kernel."""

    macs: int
    read: float
    applied: float


class FailOver(msgspec.Struct, frozen=True):
    """Seconds from the fault until the kernel of the old host had closed, and that of the next one had opened."""

    fault: str
    closed: list[float]
    opened: list[float]


@click.command("filter")
@click.pass_obj
@click.option("--database", "name", type=click.Choice(("postgresql", "mariadb")), default="postgresql")
@click.option("--macs", type=int, multiple=True, default=(10_000, 100_000), show_default=True)
@click.option("--changes", default=200, show_default=True, help="Single changes, and ports added through the API.")
@click.option("--faults", default=10, show_default=True, help="How often a leader is killed, and how often frozen.")
def pxe_filter(found: tuple[Report, Path], name: str, macs: tuple[int, ...], changes: int, faults: int) -> None:
    """The PXE filter: load, change, fail-over, memory."""
    report, directory = found
    report.section(f"filter on {name}")
    with (
        scratch(directory) as place,
        database(name, place) as base,
        service(place, base.url, roles=["api"]) as running,
        Lab(place, hosts=2) as lab,
    ):
        filtered = FilteredLab(lab, base.url)
        _fail_over(report, filtered, faults, name)
        seen = _seen(filtered, running.url, changes)
        report.keep("filter seen", seen)
        report.console.print(f"in the kernel after POST /v1/ports was sent: {seen} ms (p50 / p99 / max)")
        report.found(Figure("filter: seen after the API call, p99 s", name, seen.p99 / 1000))
        _load(report, filtered, base.url, macs, changes, name)


def _fail_over(report: Report, filtered: FilteredLab, faults: int, name: str) -> None:
    for host in filtered.hosts:
        filtered.start_pxe_filter(host)
    for fault, verb, noun in ((signal.SIGKILL, "killed", "kill"), (signal.SIGSTOP, "frozen", "freeze")):
        measured = FailOver(verb, [], [])
        for _ in range(faults):
            closed, opened = _inject(filtered, fault)
            measured.closed.append(closed)
            measured.opened.append(opened)
        report.keep("filter fail-over", measured)
        for what, raw in (("closed after", measured.closed), ("successor open after", measured.opened)):
            report.console.print(f"{verb}, {what}, s: {' '.join(f'{one:.2f}' for one in raw)}", soft_wrap=True)
        report.found(Figure(f"filter: closed after its leader was {verb}, max s", name, max(measured.closed)))
        report.found(Figure(f"filter: successor open after a {noun}, max s", name, max(measured.opened)))


def _inject(filtered: FilteredLab, fault: signal.Signals) -> tuple[float, float]:
    leader = filtered.wait_open(seconds=_GIVE_UP)
    (other,) = [host for host in filtered.hosts if host is not leader]
    assert leader.pxe_filter is not None
    leader.pxe_filter.process.send_signal(fault)
    began = time.monotonic()
    closed = _until(lambda: not is_open(leader)) - began
    opened = _until(lambda: is_open(other)) - began
    if fault is signal.SIGSTOP:
        leader.pxe_filter.process.send_signal(signal.SIGCONT)
    else:
        leader.pxe_filter.process.wait()
        filtered.start_pxe_filter(leader)
    return closed, opened


def _seen(filtered: FilteredLab, url: str, changes: int) -> Spread:
    """Add ports through the API; return how long until each was in the kernel's set."""
    leader = filtered.wait_open()
    node = filtered.node()
    pool, version = urllib3.PoolManager(), {"X-OpenStack-Ironic-API-Version": VERSION}
    took = []
    for number in range(changes):
        mac = f"02:aa:00:00:{number >> 8:02x}:{number & 255:02x}"
        began = time.monotonic()
        answer = pool.request("POST", f"{url}/v1/ports", json={"node_uuid": node.uuid, "address": mac}, headers=version)
        assert answer.status == 201, answer.data
        took.append(_until(partial(_holds, leader, "deny", mac)) - began)
    return spread(took)


def _load(report: Report, filtered: FilteredLab, url: str, sizes: tuple[int, ...], changes: int, name: str) -> None:
    leader = filtered.wait_open()
    assert leader.pxe_filter is not None
    stop = threading.Event()
    backend = open_backend(
        Settings(database=DatabaseSettings(connection=url)), clock=SystemClock(), stop=stop, listen=False
    )
    try:
        node, stored = filtered.node(), 0
        for size in sizes:
            stored = _store(filtered, node.uuid, stored, size)
            filtered.wait_applied()
            if not leader.pxe_filter.alive:
                raise RuntimeError(f"the open filter has ended:\n{leader.pxe_filter.output()[-3000:]}")
            held = memory(leader.pxe_filter.pid)
            loads = [_load_once(leader, backend.store) for _ in range(5)]
            report.keep("filter load", loads)
            raw = " ".join(f"{one.read:.3f}+{one.applied:.3f}" for one in loads)
            report.console.print(f"{size} MACs, read + applied, s: {raw}; RSS {held.rss:.1f}, peak {held.peak:.1f} MB")
            total = sorted(one.read + one.applied for one in loads)[len(loads) // 2]
            report.found(Figure(f"filter: full load of {size:,} MACs, s", name, total))
            report.found(Figure(f"filter: RSS at {size:,} MACs, MB", name, held.rss))
            if size == sizes[0]:
                one = _change(filtered, leader, backend.store, changes)
                report.keep("filter change", one)
                report.console.print(f"one change among {size}, in the filter process: {one} ms (p50 / p99 / max)")
                report.found(Figure("filter: one change, p99 ms", name, one.p99))
    finally:
        stop.set()
        backend.close()


def _store(filtered: FilteredLab, node: str, first: int, last: int) -> int:
    """Add ports until there are ``last`` of them."""
    for start in range(first, last, _BATCH):
        numbers = range(start, min(start + _BATCH, last))
        ports = [
            examples.port(examples.node(uuid=node), address=(0x02BB << 32 | number).to_bytes(6, "big").hex(":"))
            for number in numbers
        ]
        _add(filtered, ports)
    return last


def _add(filtered: FilteredLab, ports: list[Port]) -> None:
    filtered.write(lambda tx: tx.ports.add(ports))


class _Beside:
    """A PXE filter beside the one that is open, as a process has it that has just won the lease."""

    def __init__(self, host: BootHost) -> None:
        self._host = host
        self._pxe_filter = NftablesFilter(
            FilterRules(network="bench", interfaces=("boot",)), clock=SystemClock(), timeout=30
        )
        with host.space.entered():
            self._pxe_filter.install()

    def apply(self, change: SetChange, *, fresh: bool) -> None:
        with self._host.space.entered():
            self._pxe_filter.apply(change, fresh=fresh)

    def remove(self) -> None:
        with self._host.space.entered():
            self._pxe_filter.remove()


def _load_once(host: BootHost, store: Store) -> Loads:
    """Load everything."""
    pxe_filter, mac_sync = _Beside(host), MacSync(store)
    began = time.monotonic()
    mac_sync.whole()
    read = time.monotonic()
    pxe_filter.apply(mac_sync.sets.whole(), fresh=True)
    applied = time.monotonic()
    pxe_filter.remove()
    return Loads(len(mac_sync.sets.denied), read - began, applied - read)


def _change(filtered: FilteredLab, host: BootHost, store: Store, changes: int) -> Spread:
    """Time a look that finds one change, and its way into the kernel."""
    node, pxe_filter, mac_sync, took = filtered.node(), _Beside(host), MacSync(store), []
    mac_sync.whole()
    pxe_filter.apply(mac_sync.sets.whole(), fresh=True)
    for number in range(changes):
        port = examples.port(node, address=(0x02CC << 32 | number).to_bytes(6, "big").hex(":"))
        _add(filtered, [port])
        began = time.monotonic()
        for change in mac_sync.changes():
            pxe_filter.apply(change, fresh=False)
        took.append(time.monotonic() - began)
    pxe_filter.remove()
    return spread(took)


def _holds(host: BootHost, name: str, mac: str) -> bool:
    element = f"{{ 0x{mac.replace(':', '')} }}"
    return host.space.run("nft", "get", "element", "inet", "ferroscope_pxe_default", name, element).returncode == 0


def _until(condition: Callable[[], bool]) -> float:
    """Return when it was first seen to hold."""
    deadline = time.monotonic() + _GIVE_UP
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"it did not come true within {_GIVE_UP:g} s")
        time.sleep(_LOOK_EVERY)
    return time.monotonic()
