"""Compares the packages of the lock file with the published advisories: ``python3 -m tools audit``.

Exit code 0: none applies. 1: the listed ones apply. 3: the advisory service could not be reached, or did not respond
as expected, so nothing was checked.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
SCANNER: Final = ROOT / ".audit-venv/bin/pip-audit"
LOCKED: Final = ROOT / "requirements.txt"

CLEAN: Final = 0
VULNERABLE: Final = 1
NOT_CHECKED: Final = 3


def scan(scanner: Path, options: Sequence[str]) -> tuple[list[dict[str, Any]] | None, str]:
    """Return what the scanner found about each package, None if it could not check, and what it said."""
    words = ["--require-hashes", "--disable-pip", "--format=json", "--progress-spinner=off", "--timeout=20", *options]
    done = subprocess.run([str(scanner), "-r", str(LOCKED), *words], capture_output=True, text=True, check=False)
    try:
        found = json.loads(done.stdout)["dependencies"]
    except (ValueError, LookupError, TypeError):
        return None, done.stderr
    return found or None, done.stderr  # there are always some


def main(arguments: Sequence[str]) -> int:
    packages, said = scan(SCANNER, arguments)
    if packages is None:
        reason = (said.strip().splitlines() or ["no output"])[-1]
        print(f"Nothing was checked: the advisory service could not be reached or used: {reason}", file=sys.stderr)
        print("Allow this host to connect to it, or run this where that is possible.", file=sys.stderr)
        return NOT_CHECKED
    skipped = [package for package in packages if "skip_reason" in package]
    if skipped:
        print(f"{len(skipped)} packages were not checked: {skipped[0]['skip_reason']}", file=sys.stderr)
        print("The configured package index may have no advisory service.", file=sys.stderr)
    applying = [(package, advisory) for package in packages for advisory in package.get("vulns", ())]
    for package, advisory in applying:
        fixed = ", ".join(advisory["fix_versions"]) or "no version"
        print(f"{package['name']} {package['version']}: {advisory['id']}; fixed in {fixed}")
    print(f"{len(packages) - len(skipped)} packages checked, {len(applying)} advisories apply")
    if skipped:
        return NOT_CHECKED
    return VULNERABLE if applying else CLEAN


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
