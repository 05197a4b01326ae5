"""Nothing outside of a driver knows drivers by their names, but what is enabled by default."""

from __future__ import annotations

import ast
from importlib.metadata import entry_points
from pathlib import Path

import ferroscope_client
from ferroscope import bmc
from ferroscope_client.core.driver_names import not_enabled
from tests.support.rows import each

_SOURCES = (Path(bmc.__file__).parents[1], Path(ferroscope_client.__file__).parent)
_NAMES = {point.name for point in entry_points(group=bmc.GROUP)}
# The default of [drivers] enabled, and what --simulator adds; the command line's group of that name, and a process's;
# the backends of the registry, whose driver has the same name; the scan of networks, which speaks two protocols before
# there is a node, and says which driver suits what answered; what other services call each.
_CHOSEN = {
    "config/service_options.py",
    "config/inspection_options.py",
    "cli/wrong_words.py",
    "cli/main.py",
    "contrib/dcim/bmc_scan/command.py",
    "contrib/dcim/bmc_scan/scan.py",
    "core/driver_names.py",
}


def test_no_other_module_names_a_driver() -> None:
    named = {
        str(path.relative_to(source)) for source in _SOURCES for path in source.rglob("*.py") if _NAMES & _words(path)
    }
    assert {name for name in named if not name.startswith(("bmc/", "sim/"))} == _CHOSEN


def _words(path: Path) -> set[str]:
    """Return the strings in the code; docstrings are longer than a name."""
    text = path.read_text()
    found = ast.walk(ast.parse(text)) if any(name in text for name in _NAMES) else ()
    return {node.value for node in found if isinstance(node, ast.Constant) and isinstance(node.value, str)}


@each(
    ("given", "meant"),
    [
        ("Redfish", "redfish"), ("idrac", "redfish"), ("ilo5", "redfish"), ("irmc", "redfish"), ("pxe_drac", "redfish"),
        ("xclarity", "redfish"), ("idrac-redfish", "redfish"), ("redfsh", "redfish"), ("IPMI", "ipmi"),
        ("agent_ipmitool", "ipmi"), ("intel-ipmi", "ipmi"), ("lanplus", "ipmi"), ("snmp", None), ("", None),
        (None, None),
    ],
)  # fmt: skip
def test_the_driver_that_others_name_differently_is_proposed(given: object, meant: str | None) -> None:
    said = not_enabled(given, {"ipmi", "redfish", "fake-hardware"})
    assert said.partition("did you mean ")[2].partition("?")[0] == (meant or "")
    assert "did you mean" not in not_enabled(given, {"fake-hardware"})
