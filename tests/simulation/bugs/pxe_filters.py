"""PXE filters that are open although another may be."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from ferroscope.contrib.boot.pxe_filter import PxeFilterError, leader, process
from ferroscope.contrib.boot.pxe_filter.backends import nftables
from tests.simulation.bugs.registry import bug


@bug(
    "filter-outlives-lease",
    "the kernel closes a PXE filter after its lease has ended, not before",
    rule="I4",
    seeds=20,
    kind="filters",
)
def _() -> Iterator[Any]:
    hold = nftables.NftablesFilter.hold
    yield nftables.NftablesFilter, "hold", lambda self, until: hold(self, until + 6.0)


@bug(
    "filter-always-seconds",
    "a filter opens for seconds whatever is left of its lease",
    rule="I4",
    seeds=40,
    kind="filters",
)
def _() -> Iterator[Any]:
    hold = nftables.NftablesFilter.hold
    yield nftables.NftablesFilter, "hold", lambda self, _until: hold(self, self._timed._clock.monotonic() + 5.0)


@bug(
    "filter-without-guard",
    "a successor opens as soon as it is elected, and the clock of the one before is slow",
    rule="I4",
    seeds=20,
    kind="filters",
    clock_spread=0.2,
    faults=("partition", "partition", "deaf heart"),
    hosts=3,
    mean_between_faults=4.0,
    lease={"profile": "custom", "ttl": 6.0, "renew": 1.5, "poll": 6.0, "margin": 0.2},
    pxe_filter={"interfaces": ("eth0",), "channels": False},
    filter_guard_seconds=2.0,  # what such clocks and margin need
)
def _() -> Iterator[Any]:
    lead = leader.PxeFilter.lead

    def at_once(self: Any, leadership: Any) -> None:
        self._guard_seconds = 0.0
        lead(self, leadership)

    yield leader.PxeFilter, "lead", at_once


@bug("filter-held-after-loss", "a filter is held open although its lease is lost", rule="I4", seeds=20, kind="filters")
def _() -> Iterator[Any]:
    def run(self: Any) -> None:
        while not self._stop.wait(self._period):
            with contextlib.suppress(PxeFilterError):
                self._backend.hold(self._clock.monotonic() + 4.0)

    yield leader.FilterLease, "_run", run


@bug(
    "filter-not-armed",
    "an opening that is late on its way to the kernel opens all the same",
    rule="I4",
    seeds=60,
    kind="filters",
    faults=("slow firewall", "pause", "crash", "partition"),
    mean_between_faults=3.0,
    lease={"profile": "fast"},
)
def _() -> Iterator[Any]:
    def let_pass(self: Any, timeout: float) -> None:
        self._load(f"flush set {self._table} open", self._let_pass(timeout))

    yield nftables.NftablesFilter, "open", lambda self, _ticket, timeout: let_pass(self, timeout)
    yield nftables.NftablesFilter, "refresh", let_pass


@bug(
    "filter-resigns-open", "the lease is handed on while its filter is still open", rule="I4", seeds=20, kind="filters"
)
def _() -> Iterator[Any]:
    def end(self: Any) -> bool:
        self._stop.set()
        return True

    yield leader.FilterLease, "end", end
    yield leader.PxeFilter, "fail_closed", lambda _self: None


@bug(
    "filter-not-refreshed",
    "a leader opens its filter and lets it close, but keeps its lease",
    rule="filter",
    seeds=3,
    kind="filters",
)
def _() -> Iterator[Any]:
    yield leader.FilterLease, "_run", lambda _self: None


@bug(
    "pxe-filter-left-behind",
    "a process that has no time to close its filter hands its lease on",
    rule="I4",
    seeds=20,
    kind="filters",
    faults=("terminate", "slow firewall"),
    mean_between_faults=5.0,
    worker={"graceful_timeout": 0.2},
)
def _() -> Iterator[Any]:
    yield process, "_has_closed", lambda _role, _thread: True
