"""The prober: asks all boot hosts at once, all the time, and knows who answered when.

Every DISCOVER is broadcast with a transaction number of its own, so two servers that answer the same one were
open at the same instant. It runs as a process of its own, so that nothing that a test does holds it up.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from tests import ROOT
from tests.support.processes import PATIENCE, until


class Answer(msgspec.Struct, frozen=True):
    """An offer: asked and answered when (CLOCK_MONOTONIC), for whom, by whom."""

    asked: float
    answered: float
    mac: str
    server: str
    xid: int
    address: str


class Prober:
    """``add`` a MAC and it is asked for every ``interval`` seconds, until ``remove``."""

    def __init__(self, namespace: str, link: str, file: Path, *, interval: float) -> None:
        self.interval = interval
        self.answers: list[Answer] = []
        self.longest = 0.0  # between two rounds: where it is far from the interval, the prober was held up itself
        self._file = file
        self._at = 0
        file.write_text("")
        command = [sys.executable, "-m", "tests.support.pxe.probe", namespace, link, str(interval), str(file)]
        log = file.with_suffix(".log")
        with log.open("wb") as output:
            self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stderr=output, bufsize=0)
        if not until(lambda: "ready" in log.read_text() or self._process.poll() is not None):
            raise RuntimeError("the prober did not start")
        if self._process.poll() is not None:
            raise RuntimeError(f"the prober ended: {log.read_text()}")

    def add(self, *macs: str) -> None:
        """Ask for these from now on."""
        self._say("add", macs)

    def remove(self, *macs: str) -> None:
        """Do not ask for these any more."""
        self._say("remove", macs)

    def once(self, *macs: str) -> None:
        """Ask for these once, now."""
        self._say("once", macs)

    def look(self) -> list[Answer]:
        """Return the answers that are new since the last look; ``answers`` has all."""
        with self._file.open("rb") as stream:
            stream.seek(self._at)
            whole = stream.read().rpartition(b"\n")[0]
        self._at += len(whole) + 1 if whole else 0
        fresh: list[Answer] = []
        for line in whole.splitlines():
            kind, *words = json.loads(line)
            if kind == "offer":
                fresh.append(Answer(*words))
            else:
                self.longest = max(self.longest, words[1])
        self.answers.extend(fresh)
        return fresh

    def since(self, moment: float, mac: str | None = None) -> list[Answer]:
        """Return the answers to what was asked after ``moment``."""
        self.look()
        late: list[Answer] = []
        for found in reversed(self.answers):  # they are in the order in which they came
            if found.answered < moment:
                break
            if found.asked >= moment and mac in (None, found.mac):
                late.append(found)
        return late[::-1]

    def wait(self, mac: str, *, seconds: float, server: Callable[[str], bool] = lambda _: True) -> Answer | None:
        """Return the next answer for ``mac`` by a server that will do; None after so many seconds."""
        began = time.monotonic()
        found: list[Answer] = []

        def answered() -> bool:
            found[:] = [one for one in self.since(began, mac) if server(one.server)]
            return bool(found)

        return found[0] if until(answered, seconds=seconds) else None

    def quiet(self, mac: str, *, seconds: float) -> list[Answer]:
        """Watch for so many seconds; return the answers that came for ``mac``."""
        began = time.monotonic()
        time.sleep(seconds)
        return self.since(began, mac)

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _say(self, verb: str, macs: tuple[str, ...]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("".join(f"{verb} {mac}\n" for mac in macs).encode())


def doubles(answers: list[Answer]) -> list[tuple[Answer, Answer]]:
    """Return the pairs of answers to one question by two servers: instants at which two were open."""
    first: dict[int, Answer] = {}
    found = []
    for answer in answers:
        other = first.setdefault(answer.xid, answer)
        if other.server != answer.server:
            found.append((other, answer))
    return found
