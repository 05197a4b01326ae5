"""The prober's process: ``python -m tests.support.pxe.probe NAMESPACE LINK INTERVAL FILE``.

Lines on its standard input: ``add MAC``, ``remove MAC``, ``once MAC``. Lines that it appends to FILE, times of
CLOCK_MONOTONIC: ``["sent", time, interval]`` once a second, with the longest time between two rounds of it, and
``["offer", asked, answered, MAC, server, xid, address]``.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time
from pathlib import Path
from typing import Final, TextIO

from tests.support.pxe.frames import discover, offer
from tests.support.pxe.netns import entered

_ALL_IP: Final = 0x0800
_KEPT: Final = 20000


class Probe:
    """One round of DISCOVERs every ``interval`` seconds."""

    def __init__(self, link: socket.socket, interval: float, out: TextIO) -> None:
        self._link = link
        self._interval = interval
        self._out = out
        self._macs: dict[str, None] = {}
        self._asked: dict[int, float] = {}
        self._xid = int(time.time() * 1000) & 0x3FFFFFFF
        self._longest = 0.0

    def run(self) -> None:
        """Go on until the standard input ends."""
        commands = sys.stdin.buffer.raw
        partial = b""
        last = told = due = time.monotonic()
        while True:
            ready, _, _ = select.select([self._link, commands], [], [], max(0.0, due - time.monotonic()))
            if self._link in ready:
                self._hear(self._link.recv(2048), time.monotonic())
            if commands in ready:
                chunk = commands.read(65536)
                if not chunk:
                    return
                *lines, partial = (partial + chunk).split(b"\n")
                for line in lines:
                    self._obey(line.decode())
            now = time.monotonic()
            if now < due:
                continue
            self._longest = max(self._longest, now - last)
            last, due = now, max(due + self._interval, now)
            for mac in self._macs:
                self._ask(mac)
            if now - told >= 1:
                self._tell("sent", now, round(self._longest, 4))
                told, self._longest = now, 0.0

    def _obey(self, line: str) -> None:
        verb, _, mac = line.partition(" ")
        if verb == "add":
            self._macs[mac] = None
        elif verb == "remove":
            self._macs.pop(mac, None)
        elif verb == "once":
            self._ask(mac)

    def _ask(self, mac: str) -> None:
        self._xid = (self._xid + 1) & 0x7FFFFFFF
        if len(self._asked) > _KEPT:
            for old in list(self._asked)[: _KEPT // 2]:
                del self._asked[old]
        self._asked[self._xid] = time.monotonic()
        self._link.send(discover(mac, self._xid))

    def _hear(self, frame: bytes, now: float) -> None:
        told = offer(frame)
        if told is not None and told.xid in self._asked:
            asked = self._asked[told.xid]
            self._tell("offer", round(asked, 4), round(now, 4), told.mac, told.server, told.xid, told.address)

    def _tell(self, *words: object) -> None:
        self._out.write(json.dumps(words) + "\n")
        self._out.flush()


def main(namespace: str, link: str, interval: str, file: str) -> None:
    with entered(namespace):
        raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL_IP))
    with raw, Path(file).open("a", encoding="utf-8") as out:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        raw.bind((link, _ALL_IP))
        print("ready", file=sys.stderr, flush=True)
        Probe(raw, float(interval), out).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
