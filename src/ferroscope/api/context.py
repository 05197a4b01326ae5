"""What every handler receives: the store, the settings and the few sources of the outside world.

It holds no state of a call; one context serves every thread of the process.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from ferroscope.api.callers import Callers
from ferroscope.api.quiet import PerMinute, QuietLog, Valve
from ferroscope.config.options import Settings
from ferroscope.contracts.bmc import Bmc
from ferroscope.contracts.metrics import SILENT, Meter
from ferroscope.contracts.queue import Clock, StopFlag
from ferroscope.contracts.store import Store
from ferroscope.hooks.pipeline import Pipeline
from ferroscope.rules.builtin import RuleBook
from ferroscope.storage.reader import Archive


class DatabaseFacts(msgspec.Struct, frozen=True):
    """What the status tells of the database: its kind, its schema's version, and the one that this release needs."""

    kind: str
    schema: str | None
    schema_needed: str


class ApiContext(msgspec.Struct, frozen=True, kw_only=True):
    """``archive`` reads inspection data wherever it is.

    ``drivers`` by name, for listing and validation only; ``process`` names this process in the journal.

    ``new_uuid`` and ``new_token`` are random and unguessable; ``log`` is a structlog logger.
    ``describe`` asks the database about itself; ``clock`` is this host's.
    ``rules`` and ``pipeline`` are for dry runs; the latter raises ``HookSetupError``.
    ``metrics`` renders all metrics, None where they are switched off.
    ``refusals`` bounds what is logged of refused callbacks, ``limits`` what is logged of a flood of
    unknown machines, ``outages`` what is logged while the database is away, and ``valve`` what a
    flood asks of the store.
    ``sources`` counts what each source has had discovered.
    ``callers`` tells where calls come from, and bounds how often one source may guess.
    ``can_write`` says whether this process has written its heartbeat of late.
    ``draining`` is set once the process shall get no new callers from a load balancer.
    """

    store: Store
    archive: Archive
    settings: Settings
    drivers: Mapping[str, Bmc]
    process: str
    new_uuid: Callable[[], str]
    new_token: Callable[[], str]
    log: Any
    clock: Clock
    describe: Callable[[], DatabaseFacts]
    rules: RuleBook
    pipeline: Callable[[], Pipeline]
    meter: Meter = SILENT
    metrics: Callable[[], bytes] | None = None
    refusals: QuietLog = msgspec.field(default_factory=QuietLog)
    limits: QuietLog = msgspec.field(default_factory=lambda: QuietLog(burst=1))
    outages: QuietLog = msgspec.field(default_factory=lambda: QuietLog(burst=1))
    callers: Callers = msgspec.field(default_factory=Callers)
    sources: PerMinute = msgspec.field(default_factory=PerMinute)
    valve: Valve = msgspec.field(default_factory=Valve)
    can_write: Callable[[], bool] = lambda: True
    draining: StopFlag = msgspec.field(default_factory=threading.Event)
