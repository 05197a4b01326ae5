"""Whether this process has all keys with which secrets of nodes are encrypted."""

from __future__ import annotations

import math
from typing import Final

import structlog

from ferroscope.contracts.store import Clock
from ferroscope.db import Store
from ferroscope.secrets.keys import KeyRing
from ferroscope_client.core.finding import Finding

_CHECK_INTERVAL_SECONDS: Final = 15.0

_log = structlog.get_logger(__name__)


def missing_keys(store: Store, keys: KeyRing) -> Finding | None:
    """Return the finding if keys in use are not in this process's key file."""
    missing = keys.missing(store.read(lambda tx: tx.secret_keys.used()))
    if not missing:
        return None
    summary = f"[secrets] key_file lacks the key {', '.join(missing)}, with which secrets of nodes are encrypted"
    advice = "add it from the key file of the other hosts, or of a backup; until then, BMC calls of these nodes fail"
    return Finding("encryption-key-missing", "wrong", summary, advice)


class KeyCheck:
    """Calls ``missing_keys`` at most every ``_CHECK_INTERVAL_SECONDS``, and logs changed findings."""

    def __init__(self, store: Store, keys: KeyRing, clock: Clock) -> None:
        self._store, self._keys, self._clock = store, keys, clock
        self._due = -math.inf
        self._finding: Finding | None = None

    def __call__(self) -> Finding | None:
        now = self._clock.monotonic()
        if now >= self._due:
            self._due = now + _CHECK_INTERVAL_SECONDS
            finding = missing_keys(self._store, self._keys)
            if finding is not None and finding != self._finding:
                _log.error(finding.summary, advice=finding.advice)
            self._finding = finding
        return self._finding
