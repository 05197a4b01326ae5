"""The software bill of materials: the pinned packages with their licenses, what needs what, and the locked hashes."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any, Final

from packaging.utils import canonicalize_name

from tools.packaging.contents import ROOT, VERSION, run

_PROGRAM: Final = ROOT / ".audit-venv/bin/cyclonedx-py"


def write(target: Path, python: Path) -> None:
    """Write it in the format of CycloneDX; ``python``: of an environment with the pinned packages and Ferroscope."""
    installed, locked = _bill("environment", python), _bill("requirements", ROOT / "requirements.txt")
    # Only the lock file has hashes, and only the environment has the rest; it also has pip and Ferroscope.
    hashes = {_key(component): component["externalReferences"] for component in locked["components"]}
    installed["components"] = [component for component in installed["components"] if _key(component) in hashes]
    for component in installed["components"]:
        component["externalReferences"] = [*component.get("externalReferences", []), *hashes[_key(component)]]
    product = installed["metadata"]["component"]
    product |= {"version": VERSION, "purl": f"pkg:pypi/ferroscope@{VERSION}"}
    listed = {product["bom-ref"], *(component["bom-ref"] for component in installed["components"])}
    installed["dependencies"] = [edges for edges in installed["dependencies"] if edges["ref"] in listed]
    for edges in installed["dependencies"]:
        edges["dependsOn"] = [ref for ref in edges.get("dependsOn", []) if ref in listed]
    target.write_text(json.dumps(installed, indent=2, sort_keys=True) + "\n")


def _bill(kind: str, source: Path) -> Any:
    with tempfile.TemporaryDirectory(prefix="ferroscope-materials-") as name:
        output = Path(name) / "bill.json"
        options = ("--pyproject", ROOT / "pyproject.toml", "--output-reproducible", "--output-format", "JSON")
        run(_PROGRAM, kind, *options, "-o", output, source)
        return json.loads(output.read_text())


def _key(component: dict[str, Any]) -> tuple[str, str]:
    return canonicalize_name(component["name"]), component["version"]
