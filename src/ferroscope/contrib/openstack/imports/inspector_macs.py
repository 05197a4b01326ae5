"""The MACs of machines that an ironic-inspector beside this service is inspecting, for the PXE filter.

They are read from its database, in a thread of its own, so that a slow one never closes the filter. While it cannot
be read, the last MACs count for some time. Source: ``ironic_inspector/node_cache.py``; its own filters use these rows.
"""

from __future__ import annotations

import threading
from typing import Final

import structlog

from ferroscope.config.errors import SetupError
from ferroscope.contracts.store import Clock, StopFlag
from ferroscope.contrib.openstack.imports.inspector_source import engine_of, read_active_macs
from ferroscope.core.boot_macs import number, spell_mac
from ferroscope.db import DatabaseUrlError
from ferroscope_client.core.finding import Finding
from ferroscope_client.core.values import many

# More than this many are not plausible, and each of them passes the filter.
_MAX_MACS: Final = 100_000
# As long as an introspection there may take by default.
_REMEMBERED_SECONDS: Final = 3600.0
# Seconds that the start waits for the first answer.
_PATIENCE_SECONDS: Final = 10.0

_log = structlog.get_logger(__name__)


class InspectorMacs:
    """``active`` returns the MACs, which are read every ``period`` seconds after ``start``; ``SetupError``."""

    def __init__(self, connection: str, *, period: float, clock: Clock, stop: StopFlag) -> None:
        try:
            self._engine = engine_of(connection)
        except (DatabaseUrlError, SetupError, ImportError) as exc:
            raise SetupError(f"[pxe_filter] inspector_connection cannot be used: {exc}") from None
        self._period, self._clock, self._stop = period, clock, stop
        self._macs: frozenset[str] = frozenset()
        self._read_at = clock.monotonic()
        self._error = "it has not answered yet"
        self._tried = threading.Event()
        self._thread = threading.Thread(target=self._run, name="inspector-macs", daemon=True)

    def start(self) -> None:
        """Begin to read; return after the first time, or soon."""
        self._thread.start()
        self._tried.wait(_PATIENCE_SECONDS)

    def active(self) -> frozenset[str]:
        return self._macs if self._age() < _REMEMBERED_SECONDS else frozenset()

    def status(self) -> str:
        macs = f"ironic-inspector inspects machines with {many(len(self.active()), 'MAC')}"
        return f"{macs}, as of {self._age():.0f} s ago: {self._error}" if self._error else macs

    def problem(self) -> Finding | None:
        if not self._error:
            return None
        return Finding(
            "inspector-unreadable",
            "wrong",
            f"cannot read the database of ironic-inspector since {self._age():.0f} s: {self._error}",
            "check that database, or remove [pxe_filter] inspector_connection if ironic-inspector is switched off",
        )

    def _age(self) -> float:
        return self._clock.monotonic() - self._read_at

    def _run(self) -> None:
        self._read()
        while not self._stop.wait(self._period):
            self._read()

    def _read(self) -> None:
        before = self._error
        try:
            macs = read_active_macs(self._engine, _MAX_MACS)
            self._macs = frozenset(spell_mac(mac) for mac in map(number, macs) if mac is not None)
            self._read_at, self._error = self._clock.monotonic(), ""
        except SetupError as exc:
            self._error = str(exc)
            if self._error != before:
                _log.warning("cannot read the MACs that ironic-inspector inspects", why=self._error)
        finally:
            self._tried.set()
