"""News fragments: check them, show the next release's notes, or move them into CHANGELOG.md.

``python tools/changes.py`` prints, ``python tools/changes.py --release 1.2.0`` moves. See
changes/README.md for what a fragment is.
"""

from __future__ import annotations

import argparse
import datetime
import re
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
MARK: Final = "<!-- releases: tools/changes.py writes below this line -->\n"
KINDS: Final = {
    "added": "Added",
    "changed": "Changed",
    "fixed": "Fixed",
    "removed": "Removed",
    "security": "Security",
}

_NAME: Final = re.compile(r"[a-z0-9-]+\.(?P<kind>[a-z]+)\.md\Z")
_VERSION: Final = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+([a-z]+[0-9]+)?\Z")


class FragmentError(Exception):
    """A file in changes/ is not a valid fragment; the message says why."""


def fragments(directory: Path) -> dict[str, list[Path]]:
    """Return the fragments by kind, in the order of ``KINDS``; ``FragmentError``."""
    found: dict[str, list[Path]] = {kind: [] for kind in KINDS}
    for path in sorted(directory.iterdir()):
        if path.name == "README.md":
            continue
        match = _NAME.match(path.name)
        if match is None or match["kind"] not in KINDS:
            raise FragmentError(f"{path.name}: must be named WORDS.KIND.md, with a kind of {', '.join(KINDS)}")
        if not path.read_text(encoding="utf-8").strip():
            raise FragmentError(f"{path.name}: is empty; describe the change for operators")
        found[match["kind"]].append(path)
    return found


def notes(found: dict[str, list[Path]]) -> str:
    """Return the notes of a release, as Markdown without a title."""
    sections = []
    for kind, paths in found.items():
        if paths:
            items = "\n".join(f"* {_item(path)}" for path in paths)
            sections.append(f"### {KINDS[kind]}\n\n{items}\n")
    return "\n".join(sections)


def _item(path: Path) -> str:
    return "\n  ".join(path.read_text(encoding="utf-8").strip().splitlines())


def release(version: str, changelog: Path, directory: Path, today: datetime.date) -> None:
    """Write the notes below the mark in ``changelog`` and delete the fragments."""
    if _VERSION.match(version) is None:
        raise FragmentError(f"invalid version {version!r}: expected a version such as 1.2.0")
    found = fragments(directory)
    if not any(found.values()):
        raise FragmentError("no fragments to release")
    head, mark, rest = changelog.read_text(encoding="utf-8").partition(MARK)
    if not mark:
        raise FragmentError(f"{changelog.name} does not contain the line {MARK.strip()!r}")
    if re.search(rf"^## {re.escape(version)} ", rest, re.MULTILINE):
        raise FragmentError(
            f"{changelog.name} has a section {version} already: put what the fragments say into it and delete them, "
            "or name the next version if it has a tag"
        )
    text = f"{head}{mark}\n## {version} ({today.isoformat()})\n\n{notes(found)}{rest}"
    changelog.write_text(text, encoding="utf-8")
    for paths in found.values():
        for path in paths:
            path.unlink()


def main() -> int:
    parser = argparse.ArgumentParser(description="Show the notes of the next release, or publish them.")
    parser.add_argument("--release", metavar="VERSION", help="move the fragments into CHANGELOG.md")
    version = parser.parse_args().release
    try:
        if version:
            today = datetime.datetime.now(datetime.UTC).date()
            release(version, ROOT / "CHANGELOG.md", ROOT / "changes", today)
        else:
            print(notes(fragments(ROOT / "changes")), end="")
    except FragmentError as exc:
        print(f"changes: {exc}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
