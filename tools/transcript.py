"""Puts a real transcript of ``ferroscope demo`` into its page: ``python tools/transcript.py [FILE]``.

Without FILE (an output that was kept) it runs the demo; either way nothing in it is changed but spaces at the
ends of lines.
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
    """Return ``page`` with ``transcript`` between the marks, in place of what was there; ``ValueError``."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page needs the lines {BEGIN.strip()} and {END.strip()}")
    return f"{before}{begin}\n```text\n$ make demo\n{transcript.strip()}\n```\n\n{end}{after}"


def main() -> None:
    if len(sys.argv) > 1:
        transcript = Path(sys.argv[1]).read_text(encoding="utf-8")
    else:
        command = [str(Path(sys.executable).with_name("ferroscope")), "demo"]
        transcript = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    page = ROOT / "docs" / "tutorial" / "the-demo.md"
    text = insert(page.read_text(encoding="utf-8"), transcript)
    page.write_text("\n".join(line.rstrip() for line in text.split("\n")), encoding="utf-8")


if __name__ == "__main__":
    main()
