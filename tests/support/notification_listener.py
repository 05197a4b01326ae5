"""A consumer of OpenStack's notification bus: the listener of the real oslo.messaging, in the environment of Ironic.

``python -m tests.support.notification_listener URL EXCHANGE TOPIC FILE [POOL]`` notes each notification in FILE before
it is acknowledged. ``Listener`` runs that as a process that can be killed.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

from tests import ROOT
from tests.support.installation import Played


class Listener(Played):
    """The process; ``notifications`` are those that it has noted, in the order of arrival."""

    def __init__(self, directory: Path, url: str, *, topic: str, exchange: str = "openstack", pool: str = "") -> None:
        self.file = directory / f"notifications-{topic}-{pool}"
        words = [f"{url}?rabbit_quorum_queue=true", exchange, topic, str(self.file), *([pool] if pool else [])]
        # With more threads it handles, and acknowledges, the messages of a queue in any order.
        settings = ["env", "OS_DEFAULT__EXECUTOR_THREAD_POOL_SIZE=1"]
        command = [*settings, str(ROOT / ".ironic-venv/bin/python"), "-W", "ignore", "-m", __name__, *words]
        super().__init__("listener", directory, command, cwd=ROOT)

    def start(self) -> None:
        super().start()
        self.wait_ready()

    def notifications(self) -> list[dict[str, Any]]:
        """Return what was noted; a line that a kill has cut off was never acknowledged."""
        found = []
        for line in self.file.read_text().splitlines() if self.file.exists() else []:
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
        return found


def listen(url: str, exchange: str, topic: str, file: str, pool: str | None = None) -> None:
    """Listen until the process is killed."""
    import oslo_messaging
    from oslo_config import cfg

    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, b"\n")  # ends a line that a kill has cut off
    lock = threading.Lock()

    class Endpoint:
        def _note(self, ctxt: Any, publisher: str, event_type: str, payload: Any, metadata: Any, level: str) -> None:
            note = {"publisher": publisher, "type": event_type, "payload": payload, "level": level, **metadata}
            with lock:
                os.write(descriptor, json.dumps(note).encode() + b"\n")
                os.fsync(descriptor)

        def info(self, *arguments: Any) -> None:
            self._note(*arguments, level="info")

        def error(self, *arguments: Any) -> None:
            self._note(*arguments, level="error")

    conf = cfg.ConfigOpts()
    conf([])
    transport = oslo_messaging.get_notification_transport(conf, url=url)
    target = oslo_messaging.Target(topic=topic, exchange=exchange)
    listener = oslo_messaging.get_notification_listener(
        transport, [target], [Endpoint()], executor="threading", pool=pool, allow_requeue=True
    )
    listener.start()
    print("ready", flush=True)
    listener.wait()


if __name__ == "__main__":
    listen(*sys.argv[1:])
