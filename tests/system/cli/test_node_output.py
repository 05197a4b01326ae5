"""``node list`` and ``node show``: ``-o wide``, ``-o jsonpath``, and ``--watch`` with real processes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ferroscope_client.errors import Exit
from tests.api.service import Service
from tests.support.processes import PATIENCE, until
from tests.system.cli.console import Shell
from tests.system.cli.test_top import Terminal, environment


class Watching:
    """A command with --watch in a pipe; ``lines`` are what it has printed."""

    def __init__(self, url: str, directory: Path, *words: str) -> None:
        self._file = directory / "out"
        command = [sys.executable, "-m", "ferroscope", *words, "--watch"]
        with self._file.open("wb") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=environment(url))

    @property
    def text(self) -> str:
        return self._file.read_text()

    def prints(self, *words: str) -> bool:
        return until(lambda: all(word in self.text for word in words))

    def end(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(PATIENCE)


@pytest.fixture
def node(service: Service) -> str:
    return service.enrol(name="one", description="the first")


def test_wide_has_all_fields_of_the_api(shell: Shell, node: str) -> None:
    wide, usual = (
        {" ".join(line.split()) for line in shell.lines("node", "show", node, *words)} for words in (["-o", "wide"], [])
    )
    assert usual < wide
    assert "Deploy interface" not in " ".join(usual)
    assert len(wide) > len(usual) + 5


def test_a_list_that_is_watched_prints_what_changes(shell: Shell, service: Service, node: str, tmp_path: Path) -> None:
    watching = Watching(shell.url, tmp_path, "node", "list")
    try:
        assert watching.prints("one")
        service.enrol(name="two")
        assert watching.prints("two")
        service.bare_metal.put(f"/v1/nodes/{node}/states/provision", {"target": "inspect"})
        assert watching.prints("one  inspecting")
        shell("node", "delete", "two", check=0)
        service.consume()
        assert watching.process.poll() is None
        assert watching.end() == Exit.INTERRUPTED
        assert "Traceback" not in watching.text
        assert len([line for line in watching.text.splitlines() if "  one  " in line]) == 2
    finally:
        watching.process.kill()
        watching.process.wait()


def test_a_node_that_is_watched_is_printed_again_when_it_changes(
    shell: Shell, service: Service, node: str, tmp_path: Path
) -> None:
    watching = Watching(shell.url, tmp_path, "node", "show", "one", "-o", "json")
    try:
        assert watching.prints('"description": "the first"')
        assert json.loads(watching.text)["ports"] == []
        shell("node", "set", "one", "--description", "changed", check=0)
        assert watching.prints('"description": "changed"')
    finally:
        watching.process.kill()
        watching.process.wait()


@pytest.mark.parametrize("words", [("list",), ("show", "one")])
def test_on_a_terminal_the_table_is_refreshed(
    shell: Shell, service: Service, node: str, words: tuple[str, ...]
) -> None:
    terminal = Terminal(shell.url, "node", *words, "--watch")
    try:
        assert terminal.writes("enroll")
        service.bare_metal.put(f"/v1/nodes/{node}/states/provision", {"target": "inspect"})
        assert terminal.writes("inspecting")
        assert terminal.press(b"\x03") == Exit.INTERRUPTED
        assert "Traceback" not in terminal.text
    finally:
        terminal.close()


@pytest.mark.parametrize("words", [("-o", "csv"), ("--fields", "name")])
def test_what_cannot_be_watched_is_refused(shell: Shell, words: tuple[str, ...]) -> None:
    shell("node", "list", "--watch", *words, check=Exit.USAGE)
