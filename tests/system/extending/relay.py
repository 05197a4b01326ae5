"""A board behind a relay: HTTP as Tasmota speaks it; switched on, it boots, and its ramdisk calls back."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

from tests.support.http_target import HttpTarget


class Relay(HttpTarget):
    """``with Relay(boot) as relay:``; ``boot`` is called in a thread of its own whenever the power comes on."""

    def __init__(self, boot: Callable[[], None]) -> None:
        super().__init__()
        self.commands: list[str] = []
        self.on = False
        self._boot = boot

    def answer(self, path: str, _body: bytes) -> tuple[int, bytes]:
        parts = urlsplit(path)
        if parts.path != "/cm":
            return 404, b""
        return 200, json.dumps(self._obey(parse_qs(parts.query)["cmnd"][0])).encode()

    def _obey(self, command: str) -> dict[str, str]:
        self.commands.append(command)
        if command == "Power On" and not self.on:
            threading.Thread(target=self._boot, daemon=True).start()
        self.on = {"Power On": True, "Power Off": False}.get(command, self.on)
        return {"POWER": "ON" if self.on else "OFF"}
