"""A package of this repository for another environment: built from its source, and installed into a directory."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path


def install(package: Path, directory: Path) -> Path:
    """Build and install it without its dependencies; return the directory that has to be in Python's path."""
    source, target = directory / "source", directory / "packages"
    shutil.copytree(package, source, ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--disable-pip-version-check", "--no-index"]
    subprocess.run(
        [sys.executable, "-m", "pip", "install", *options, "--target", str(target), str(source)],
        check=True,
        capture_output=True,
    )
    return target
