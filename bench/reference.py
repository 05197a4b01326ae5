"""Another commit of this repository, installed beside this tree so that both can be measured in turns.

It gets this environment's interpreter and libraries, so that only the source differs; of its own requirements only
what this environment lacks is added. It stays in ``build/reference``, so the next run starts at once.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Final

import msgspec

_ROOT: Final = Path(__file__).parents[1]
_KEPT: Final = _ROOT / "build" / "reference"
_EXTRAS: Final = "postgresql,mysql"


class Tree(msgspec.Struct, frozen=True):
    """Source that is installed: the ``commit``, its ``python``, and where its source is."""

    commit: str
    python: str
    source: Path

    @property
    def executable(self) -> str:
        """The installed ``ferroscope``."""
        return str(Path(self.python).with_name("ferroscope"))


def this() -> Tree:
    """Return the tree that this module is part of, with its uncommitted changes."""
    return Tree(_git("describe", "--always", "--dirty"), sys.executable, _ROOT / "src")


def is_known(commit: str) -> bool:
    """Whether this is a clone, and has the commit: a shallow one may not."""
    command = ["git", "cat-file", "-e", f"{commit}^{{commit}}"]
    return subprocess.run(command, cwd=_ROOT, stderr=subprocess.DEVNULL, check=False).returncode == 0


def prepared(commit: str) -> Tree:
    """Return ``commit``, whatever git calls one; install it first if it is not yet."""
    full = _git("rev-parse", "--verify", f"{commit}^{{commit}}")
    place = _KEPT / full[:12]
    tree = Tree(full[:8], str(place / "venv" / "bin" / "python"), place / "tree" / "src")
    if not (place / "installed").exists():
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        _unpack(full, place / "tree")
        _install(place)
        (place / "installed").touch()
    return tree


def _unpack(commit: str, directory: Path) -> None:
    directory.mkdir()
    with tempfile.TemporaryFile() as archive:
        subprocess.run(["git", "archive", commit], cwd=_ROOT, stdout=archive, check=True)
        archive.seek(0)
        subprocess.run(["tar", "-x", "-C", str(directory)], stdin=archive, check=True)


def _install(place: Path) -> None:
    python = place / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place / "venv")], check=True)
    there = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    # A path in a .pth file is searched last, and the .pth files in it, such as that of this tree, are not read.
    (Path(there) / "shared.pth").write_text(sysconfig.get_path("purelib") + "\n")
    options = ["--quiet", "--no-build-isolation", "--disable-pip-version-check", "--ignore-installed", "--no-deps"]
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install"]
    subprocess.run([*pip, *options, str(place / "tree")], check=True)
    missing = subprocess.run(
        [python, "-c", _MISSING, _EXTRAS], capture_output=True, text=True, check=True
    ).stdout.split()
    if missing:
        subprocess.run([*pip, "--quiet", "--disable-pip-version-check", *missing], check=True)


# Names what the installed ferroscope requires, and the environment does not have.
_MISSING: Final = """
import sys
from importlib.metadata import PackageNotFoundError, distribution
extras = sys.argv[1].split(",")
for text in distribution("ferroscope").requires or ():
    wanted, _, marker = text.partition(";")
    if "extra" in marker and not any(repr(name) in marker.replace('"', "'") for name in extras):
        continue
    name = wanted.replace(" ", "").split(">")[0].split("=")[0].split("<")[0].split("[")[0]
    try:
        distribution(name)
    except PackageNotFoundError:
        print(wanted.replace(" ", "").strip())
"""


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=_ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"git {' '.join(words)}: {done.stderr.strip()}; name a commit that this clone has")
    return done.stdout.strip()
