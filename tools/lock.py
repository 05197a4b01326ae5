"""Pins every package that Ferroscope, its tools and the tests' clients need: ``make lock``.

It asks pip which versions it would choose today, without any of the present pins, and installs
nothing. The files that it writes are pip constraints; ``tools/setup.sh`` installs with them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]

CONSTRAINTS: Final = ROOT / "constraints.txt"
CLIENTS: Final = ROOT / "tests/acceptance/clients.txt"
CLIENT_CONSTRAINTS: Final = ROOT / "tests/acceptance/clients-constraints.txt"
EMULATORS: Final = ROOT / "tests/support/emulators/emulators.txt"
EMULATOR_CONSTRAINTS: Final = EMULATORS.with_name("emulators-constraints.txt")


def resolve(*wanted: str) -> dict[str, str]:
    """Return name -> version of what pip would install for ``wanted``, and of all that needs."""
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "-qq", "--report", "-"]
    done = subprocess.run([*command, *wanted], cwd=ROOT, stdout=subprocess.PIPE, check=True)
    packages = [
        item["metadata"] for item in json.loads(done.stdout)["install"] if "dir_info" not in item["download_info"]
    ]
    return {package["name"]: package["version"] for package in packages}


def write(path: Path, what: str, packages: dict[str, str]) -> None:
    lines = [f"{name}=={version}" for name, version in sorted(packages.items(), key=lambda item: item[0].lower())]
    path.write_text("\n".join([f"# {what} Made by: make lock", *lines, ""]))
    print(f"{path.relative_to(ROOT)}: {len(lines)} packages")


def main() -> None:
    write(CONSTRAINTS, "Everything that .venv contains.", resolve("-e", ".[dev]"))
    write(CLIENT_CONSTRAINTS, "Everything that .clients-venv contains.", resolve("-r", str(CLIENTS)))
    write(EMULATOR_CONSTRAINTS, "Everything that .emulators-venv contains.", resolve("-r", str(EMULATORS)))


if __name__ == "__main__":
    main()
