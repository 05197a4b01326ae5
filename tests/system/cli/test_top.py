"""``ferroscope top`` against a real service, on a real pseudo-terminal and in a pipe."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from msgspec import structs

from ferroscope.core.states import Event
from ferroscope_client.errors import Exit
from tests.api.service import Service
from tests.fast.cli.running import NO_CREDENTIALS
from tests.support.processes import PATIENCE, free_port, until
from tests.system.cli.console import Shell

_LEAVES = "\x1b[?25h\x1b[?1049l"


class Terminal:
    """The command on a terminal of this size; ``text`` is what it has written."""

    def __init__(self, url: str, *words: str, columns: int = 80, rows: int = 24) -> None:
        self.keyboard, self._other = pty.openpty()
        fcntl.ioctl(self._other, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.before = termios.tcgetattr(self._other)
        self.text = ""
        command = [sys.executable, "-m", "ferroscope", *(words or ("top", "-n", "0.2"))]
        self.process = subprocess.Popen(
            command, stdin=self._other, stdout=self._other, stderr=self._other, env=environment(url),
            preexec_fn=self._take_terminal,
        )  # fmt: skip
        os.set_blocking(self.keyboard, False)

    def _take_terminal(self) -> None:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    def shows(self, condition: Callable[[str], bool]) -> bool:
        """Whether the newest screen comes to fulfill this."""

        def met() -> bool:
            with contextlib.suppress(OSError):
                self.text += os.read(self.keyboard, 1 << 16).decode(errors="replace")  # a character may be cut
            return condition(self.text.rpartition("\x1b[H")[2])

        return until(met)

    def writes(self, text: str) -> bool:
        """Whether it comes to write this."""
        return self.shows(lambda _: text in self.text)

    def press(self, key: bytes) -> int:
        os.write(self.keyboard, key)
        assert until(lambda: (self.shows(lambda _: True), self.process.poll() is not None)[1])
        self.shows(lambda _: True)
        return self.process.returncode

    @property
    def is_restored(self) -> bool:
        return self.text.endswith(_LEAVES) and termios.tcgetattr(self._other) == self.before

    def type(self, text: str) -> None:
        os.write(self.keyboard, text.encode())

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.keyboard)
        os.close(self._other)


def environment(url: str, **more: str) -> dict[str, str]:
    fixed = {*NO_CREDENTIALS, "COLUMNS", "LINES"}  # the size of the terminal, which the processes of xdist are given
    hidden = {name: value for name, value in os.environ.items() if name not in fixed}
    ours = {"FERROSCOPE_URL": url, "FERROSCOPE_UTC": "1", "TERM": "xterm", "XDG_CONFIG_HOME": "/nonexistent"}
    return hidden | ours | more


@pytest.fixture
def terminal(shell: Shell) -> Iterator[Terminal]:
    started = Terminal(shell.url)
    yield started
    started.close()


def test_once_prints_a_screen_with_what_is_in_progress_and_what_failed(shell: Shell, service: Service) -> None:
    names = ("starts", "waits", "works", "failed")
    uuids = {name: service.enrol(name=name) for name in names}
    for name in names:
        service.bare_metal.put(f"/v1/nodes/{uuids[name]}/states/provision", {"target": "inspect"})
    service.consume()
    service.step(uuids["waits"], Event.WAIT)
    service.step(uuids["works"], Event.WAIT)
    service.step(uuids["works"], Event.CONTINUE)
    service.fail(uuids["failed"])
    works = service.node(uuids["works"])  # its machine has taken a minute
    earlier = (works.inspection_started_at or 0.0) - 60.0
    service.store.write(lambda tx: tx.nodes.update(structs.replace(works, inspection_started_at=earlier)))
    lines = shell.lines("top", "--once", "--utc")
    assert len(lines) <= 24
    assert re.search(r"\d\d:\d\d:\d\d UTC$", lines[0])
    rows = {line.split()[0]: line.split()[1:] for line in lines if line}
    assert [rows[name][0] for name in names[:3]] == ["starting", "waiting", "processing"]
    assert "failed" not in rows
    assert any(line.endswith(" ferroscope search reason==timeout") for line in lines)
    assert shell.json("status")["failed"] == {"timeout": 1}


def test_once_without_a_service_has_its_own_exit_code() -> None:
    Shell(f"http://127.0.0.1:{free_port()}")("top", "--once", check=Exit.UNREACHABLE)


@pytest.mark.parametrize(("key", "code"), [(b"q", 0), (b"\x03", Exit.INTERRUPTED)])
def test_a_key_ends_it_and_the_terminal_is_as_before(terminal: Terminal, key: bytes, code: int) -> None:
    assert terminal.shows(lambda screen: "Nodes" in screen)
    assert terminal.press(key) == code
    assert terminal.is_restored
    assert "Traceback" not in terminal.text


def test_other_keys_do_not_end_it(terminal: Terminal) -> None:
    assert terminal.shows(lambda screen: "Nodes" in screen)
    os.write(terminal.keyboard, b"xyz\r")
    terminal.text = ""
    assert terminal.shows(lambda screen: "Nodes" in screen)
    assert terminal.process.poll() is None


def test_it_follows_the_size_of_the_terminal(terminal: Terminal) -> None:
    assert terminal.shows(lambda screen: "Nodes" in screen)
    fcntl.ioctl(terminal.keyboard, termios.TIOCSWINSZ, struct.pack("HHHH", 2, 30, 0, 0))
    fits = terminal.shows(lambda screen: screen.count("\r\n") == 1 and max(map(len, screen.split("\r\n"))) < 50)
    assert fits, terminal.text[-500:]


def test_a_service_that_is_away_is_a_line_until_it_is_back(service: Service, listener: object, shell: Shell) -> None:
    switch = listener[0]  # type: ignore[index]
    app, switch.app = switch.app, _unavailable
    terminal = Terminal(shell.url)
    try:
        assert terminal.shows(lambda screen: screen.count("\r\n") == 1)
        switch.app = app
        assert terminal.shows(lambda screen: "Nodes" in screen)
        lines = len(terminal.text.rpartition("\x1b[H")[2].split("\r\n"))
        for status in ("503 Service Unavailable", "429 Too Many Requests", "500 Internal Server Error"):
            switch.app = partial(_unavailable, status=status)
            assert terminal.shows(lambda screen: len(screen.split("\r\n")) == lines + 1)
            switch.app = app
            assert terminal.shows(lambda screen: len(screen.split("\r\n")) == lines)
        assert terminal.press(b"q") == 0
    finally:
        terminal.close()


def _unavailable(
    _environ: object, start_response: Callable[..., object], status: str = "503 Service Unavailable"
) -> list[bytes]:
    start_response(status, [("Content-Type", "application/json")])
    return [b"{}"]


def test_a_closed_pipe_ends_it_without_a_word(shell: Shell, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ferroscope", "top", "-n", "0.2"]
    with (tmp_path / "err").open("wb") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, env=environment(shell.url))
    assert process.stdout is not None
    assert process.stdout.readline().startswith(b"ferroscope")
    process.stdout.close()
    try:
        assert process.wait(PATIENCE) in (0, 1)
        assert (tmp_path / "err").read_bytes() == b""
    finally:
        process.kill()
        process.wait()


def test_a_pipe_gets_it_once_and_uncut(service: Service, shell: Shell) -> None:
    uuid = service.enrol(name="n" * 200)
    service.bare_metal.put(f"/v1/nodes/{uuid}/states/provision", {"target": "inspect"})
    service.consume()
    service.fail(uuid)
    lines = shell.lines("top")
    assert len([line for line in lines if line.startswith("ferroscope")]) == 1
    assert any("n" * 200 in line for line in lines)
