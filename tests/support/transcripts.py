"""``python -m tests.support.transcripts``: write what the tutorials' commands print into their pages."""

from __future__ import annotations

import itertools
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from bench.service import executable
from tests.fast.docs.pages import page
from tests.support.follower import Follower
from tests.support.processes import until

FIRST_INSPECTION: Final = "docs/tutorial/first-inspection.md"
DEMO: Final = "docs/tutorial/the-demo.md"
# The service works while the reader reads. These commands wait for what the page shows.
_READY: Final = {
    "ferroscope status": ("ferroscope status", "to count ahead"),
    "curl": ("ferroscope node show rack1-u07", "inspect wait"),
    "ferroscope node show": ("ferroscope node show rack1-u07", "Inspection ended"),
}
_LONG_LIST: Final = 4
_CONSOLE: Final = re.compile(r"(?<=```console\n).*?(?=^```$)", re.MULTILINE | re.DOTALL)
_FIXED: Final = re.compile(r"^(\[|\$ |(NODE|AFTER|AT) )|(?<!\.)\.$")
_MASKS: Final = {
    r"[0-9a-f]{8}-[0-9a-f-]{27}": "UUID",
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d": "TIME",
    r"@[\w.-]+:\d+": "@vm:PID",
    r"-?\d+(\.\d+)? s\b": "N s",
    r"(?<=127\.0\.0\.1:)\d+": "PORT",
    r"\d+ slots": "N slots",
    r" +": " ",
}


def mask(text: str) -> str:
    """Return a transcript without what differs between runs."""
    for pattern, replacement in _MASKS.items():
        text = re.sub(pattern, replacement, text)
    return text


def find_fixed_lines(transcript: str) -> list[str]:
    """Return the lines of the demo that each run has: commands, headings and sentences, without numbers."""
    lines = [re.sub(r"\d+", "N", mask(line)).replace("[ ", "[") for line in transcript.splitlines()]
    return [re.sub(r"(?<=ferroscope-demo-)\w+", "", line) for line in lines if _FIXED.search(line)]


def play_first_inspection(directory: Path) -> str:
    """Return the page, with what its commands print now in place of what it shows."""
    text = page(FIRST_INSPECTION).text
    begin, end = text.index("## 2."), text.index("## 7.")
    follower = Follower(directory)
    follower.environment |= {
        "OS_API__BARE_METAL_PORT": str(follower.port),
        "OS_API__INTROSPECTION_PORT": "0",
        "OS_DATABASE__CONNECTION": f"sqlite:///{directory}/ferroscope.db",
    }
    (inventory,) = (block.text for block in page(FIRST_INSPECTION).blocks if block.language == "json")
    (directory / "inventory.json").write_text(inventory)
    try:
        played = _CONSOLE.sub(lambda block: _play(follower, block[0]), text[begin:end])
    finally:
        follower.end()
    return text[:begin] + played.replace(str(follower.port), "6385") + text[end:]


def _play(follower: Follower, block: str) -> str:
    """Run the commands of a block; return it with the output of those that show some."""
    parts = re.split(r"^\$ (.*)\n", block, flags=re.MULTILINE)
    played = ""
    for command, shown in zip(parts[1::2], parts[2::2], strict=True):
        for beginning, (watched, text) in _READY.items():
            if command.startswith(beginning) and shown:
                assert until(lambda watched=watched, text=text: text in follower.print(watched))
        output = "" if command.startswith(("cd ", ". ")) else follower.print(command).rstrip("\n") + "\n"
        played += f"$ {command}\n{output if shown else ''}"
    return played


def _find_list(line: str) -> str:
    return "sim-" if line.lstrip().startswith("sim-") else line


def play_demo() -> str:
    """Return what the demo prints, without the middle of long lists, and without how to go on."""
    done = subprocess.run([executable(), "demo"], capture_output=True, text=True, check=True)
    story = re.match(r"(?s).*^Done in .*?\n", done.stdout, re.MULTILINE)
    assert story is not None, done.stdout
    transcript = "$ make demo\n"
    for _, group in itertools.groupby(story[0].splitlines(keepends=True), _find_list):
        lines = list(group)
        transcript += "".join([*lines[:2], "...\n", lines[-1]] if len(lines) > _LONG_LIST else lines)
    return transcript


def main() -> None:
    """Write both transcripts."""
    with tempfile.TemporaryDirectory() as directory:
        page(FIRST_INSPECTION).path.write_text(play_first_inspection(Path(directory)), encoding="utf-8")
    before = page(DEMO)
    (transcript,) = (block.text for block in before.blocks if block.language == "text")
    before.path.write_text(before.text.replace(transcript, play_demo()), encoding="utf-8")


if __name__ == "__main__":
    main()
