"""This process as a member of the party: it heartbeats, and leaves when it stops.

What a member holds is free when its heartbeat has expired, so the heart has its own thread and
beats whatever the workers do.
"""

from __future__ import annotations

import os
import socket
import threading
import uuid

import structlog

from ferroscope.config.settings import WorkerSettings
from ferroscope.domain.model import Member
from ferroscope.ports.clock import StopFlag
from ferroscope.ports.errors import StoreUnavailableError
from ferroscope.ports.store import Store

_log = structlog.get_logger(__name__)


class Membership:
    """Join with ``start``; after the stop flag is set, ``leave``."""

    def __init__(self, store: Store, settings: WorkerSettings, *, role: str, stop: StopFlag, ident: str = "") -> None:
        self._store = store
        self._settings = settings
        self._stop = stop
        self.member = Member(id=ident or str(uuid.uuid4()), host=socket.gethostname(), pid=os.getpid(), role=role)
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Announce this process, then go on doing so; ``StoreUnavailableError``."""
        self._beat()
        self._thread.start()

    def leave(self) -> None:
        """Free at once whatever this process still holds."""
        self._thread.join(self._settings.heartbeat_interval)
        try:
            self._store.write(lambda tx: tx.members.leave(self.member.id))
        except StoreUnavailableError as exc:
            _log.warning("could not leave the party; the heartbeat will expire", error=str(exc))

    def _beat(self) -> None:
        self._store.write(lambda tx: tx.members.beat(self.member, self._settings.member_ttl), durable=False)

    def _run(self) -> None:
        while not self._stop.wait(self._settings.heartbeat_interval):
            try:
                self._beat()
            except StoreUnavailableError as exc:
                _log.warning("heartbeat missed", error=str(exc))
