"""The systemd units that are shipped."""

from __future__ import annotations

import configparser
from pathlib import Path
from typing import Final

from tests import ROOT

UNITS: Final = sorted((ROOT / "deploy" / "systemd").glob("*.service"))
TEMPLATES: Final = [unit for unit in UNITS if unit.stem.endswith("@")]
DAEMONS: Final = [unit for unit in UNITS if unit.stem != "ferroscope-pxe-closed" and unit not in TEMPLATES]


def parsed(unit: Path) -> configparser.ConfigParser:
    """Return what a unit says; of a line that occurs several times the last one."""
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(unit)
    return parser


def environment(role: str) -> dict[str, str]:
    """Return the variables that the unit of ``role`` sets."""
    (unit,) = [unit for unit in DAEMONS if unit.stem == f"ferroscope-{role}"]
    words = parsed(unit)["Service"].get("Environment", "").split()
    return dict(word.split("=", 1) for word in words)
