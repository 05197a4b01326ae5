"""Inserts a real transcript of ``make demo`` into its page: ``python tools/transcript.py [FILE]``.

Without FILE (saved output) it runs the demo. Only trailing spaces are changed.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
BEGIN: Final = "<!-- transcript: make demo -->\n"
END: Final = "<!-- end of transcript -->\n"


def insert(page: str, transcript: str) -> str:
    """Return ``page`` with the text between the marks replaced by ``transcript``; ``ValueError`` without marks."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page needs the lines {BEGIN.strip()} and {END.strip()}")
    return f"{before}{begin}\n```text\n$ make demo\n{transcript.strip()}\n```\n\n{end}{after}"


def main() -> None:
    if len(sys.argv) > 1:
        transcript = Path(sys.argv[1]).read_text(encoding="utf-8")
    else:
        # As make does: the path of the program is in the output.
        command = [".venv/bin/ferroscope", "demo"]
        transcript = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    page = ROOT / "docs" / "tutorial" / "the-demo.md"
    text = insert(page.read_text(encoding="utf-8"), transcript)
    page.write_text("\n".join(line.rstrip() for line in text.split("\n")), encoding="utf-8")


if __name__ == "__main__":
    main()
