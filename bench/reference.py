"""Another commit of this repository, installed beside this tree so that both can be measured in turns.

It gets this environment's interpreter and libraries, so that only the source differs; of its own requirements only
what this environment lacks is added. It stays in ``build/reference``, so the next run starts at once.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Final

import msgspec

_ROOT: Final = Path(__file__).parents[1]
_KEPT: Final = _ROOT / "build" / "reference"


class Tree(msgspec.Struct, frozen=True):
    """Source that is installed: the ``commit``, and its ``python``."""

    commit: str
    python: str

    @property
    def executable(self) -> str:
        """The installed ``ferroscope``."""
        return str(Path(self.python).with_name("ferroscope"))


def find_this_tree() -> Tree:
    """Return the tree that this module is part of, with its uncommitted changes."""
    return Tree(_git("describe", "--always", "--dirty"), sys.executable)


def is_known(commit: str) -> bool:
    """Whether this is a clone, and has the commit: a shallow one may not."""
    command = ["git", "cat-file", "-e", f"{commit}^{{commit}}"]
    return subprocess.run(command, cwd=_ROOT, stderr=subprocess.DEVNULL, check=False).returncode == 0


def install_commit(commit: str) -> Tree:
    """Return ``commit``, whatever git calls one; install it first if it is not yet."""
    full = _git("rev-parse", "--verify", f"{commit}^{{commit}}")
    place = _KEPT / full[:12]
    tree = Tree(full[:8], str(place / "venv" / "bin" / "python"))
    if not (place / "installed").exists():
        shutil.rmtree(place, ignore_errors=True)
        (place / "tree").mkdir(parents=True)
        archive = subprocess.run(["git", "archive", full], cwd=_ROOT, capture_output=True, check=True).stdout
        subprocess.run(["tar", "-x", "-C", str(place / "tree")], input=archive, check=True)
        _install(place, tree.python)
        (place / "installed").touch()
    return tree


def _install(place: Path, python: str) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place / "venv")], check=True)
    packages = _output(python, "import sysconfig; print(sysconfig.get_path('purelib'))")
    # A path in a .pth file is searched last, and the .pth files in it, such as that of this tree, are not read.
    (Path(packages) / "shared.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--disable-pip-version-check"]
    options = ["--no-build-isolation", "--ignore-installed", "--no-deps"]
    subprocess.run([*pip, *options, str(place / "tree")], check=True)
    if missing := _output(python, _MISSING).split():
        subprocess.run([*pip, *missing], check=True)


# Names what the installed ferroscope requires, with its databases, and the environment does not have.
_MISSING: Final = """
from importlib.metadata import PackageNotFoundError, distribution
from packaging.requirements import Requirement
for text in distribution("ferroscope").requires or ():
    wanted = Requirement(text)
    extras = ("", "postgresql", "mysql")
    if wanted.marker is None or any(wanted.marker.evaluate({"extra": extra}) for extra in extras):
        try:
            distribution(wanted.name)
        except PackageNotFoundError:
            print(f"{wanted.name}{wanted.specifier}")
"""


def _output(python: str, code: str) -> str:
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=_ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"git {' '.join(words)}: {done.stderr.strip()}; name a commit that this clone has")
    return done.stdout.strip()
