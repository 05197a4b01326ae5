"""Finds the ramdisks in a directory, and compares their files with their manifests."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Final

import msgspec

from ferroscope.contrib.ramdisk.manifest import Manifest, RamdiskError, digest, read

MANIFESTS: Final = "*.manifest.json"
# The oldest agent that the service works with: the first whose inventory and callback have the present form, and that
# runs on the ramdisk's Python.
OLDEST_AGENT: Final = (9, 0)
# Debian publishes a point release, with the security updates so far, every two months.
OLD_DAYS: Final = 90


class Installed(msgspec.Struct, frozen=True):
    """A ramdisk in a directory."""

    path: Path
    manifest: Manifest

    @property
    def name(self) -> str:
        """The name that its files have in common."""
        return self.path.name.removesuffix(MANIFESTS[1:])

    @property
    def size(self) -> int:
        """Bytes that a machine loads from the network: the two largest files except the ISO."""
        sizes = sorted(file.size for name, file in self.manifest.files.items() if not name.endswith(".iso"))
        return sum(sizes[-2:])

    def age(self, now: datetime.datetime) -> int:
        """Return how many days ago its sources were published."""
        return (now - self.manifest.sources_time).days

    def list_problems(self) -> list[str]:
        """Return the problems of its files: missing ones, and those that differ from the manifest."""
        problems = []
        for name, wanted in self.manifest.files.items():
            path = self.path.parent / name
            try:
                if path.stat().st_size != wanted.size or digest(path) != wanted:
                    problems.append(f"{name} is not the file of the manifest")
            except FileNotFoundError:
                problems.append(f"{name} is missing")
            except OSError as exc:
                problems.append(f"{name} cannot be read ({exc.strerror})")
        return problems


def find(directory: Path) -> list[Installed]:
    """Return the ramdisks in a directory; ``RamdiskError`` if a manifest cannot be read."""
    return [Installed(path, read(path)) for path in sorted(directory.glob(MANIFESTS))]


def some(directory: Path) -> list[Installed]:
    """Return the ramdisks in a directory; ``RamdiskError`` if there are none."""
    if builds := find(directory):
        return builds
    advice = f"build one: ferroscope ramdisk build --directory {directory}"
    raise RamdiskError(f"{directory} has no ramdisk of Ferroscope", advice)


def agent_is_old(version: str) -> bool:
    """Whether a release of the agent is older than those that are supported."""
    numbers = version.split(".")[: len(OLDEST_AGENT)]
    return tuple(int(number) if number.isdigit() else 0 for number in numbers) < OLDEST_AGENT
