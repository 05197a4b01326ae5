"""What the image and the Debian package have in common: Ferroscope and its pinned Python packages, ready to run.

The result depends on the source, the lock file and Debian's packages only: no time, no path of the build.
"""

from __future__ import annotations

import os
import py_compile
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from packaging.markers import Marker

import ferroscope

ROOT: Final = Path(__file__).parents[2]
VERSION: Final = ferroscope.__version__
# The image is made of Debian 12; the Debian package is for these versions of Debian.
SUITE: Final = "bookworm"
PYTHON: Final = "3.11"
PYTHONS: Final = {"bookworm": "3.11", "trixie": "3.13", "forky": "3.14"}
# The patch release in Debian 12, on which it depends what is needed; pip would ask the Python that builds.
_FULL: Final = {"3.11": "3.11.2"}
# That of Debian 12: what runs with it runs with later ones, too.
_GLIBC: Final = 36
# The interpreter on such a system, wherever the build runs.
INTERPRETER: Final = "/usr/bin/python3.11"

# Parts of Python packages that no installation uses: their tests, and the sources of compiled modules. netaddr's lists
# of vendors (9 MB) are for its OUI class, which nobody calls. Rich brings Pygments, with languages (3 MB) that nobody
# highlights; OpenTelemetry brings protocols of clouds that it does not speak, and SQLAlchemy other databases.
_TESTS: Final = ("*/tests", "*/test", "*/*/tests", "*/testing")
# pbr names it as a dependency, for building packages only.
_SETUPTOOLS: Final = ("setuptools*", "pkg_resources", "_distutils_hack", "distutils-precedence.pth")
_SOURCES: Final = ("**/*.c", "**/*.pyx", "**/*.pxd", "**/*.pyi", "netaddr/eui/*.txt", "netaddr/eui/*.idx")
_UNUSED: Final = (
    "pygments/lexers/_*_builtins.py", "pygments/lexers/[a-z]*.py", "sqlalchemy/dialects/mssql",
    "sqlalchemy/dialects/oracle", "google/api", "google/cloud", "google/longrunning", "google/type",
    "falcon/bench", "oslo_config/sources/templates",
)  # fmt: skip
# Lists of what a wheel was built of, and the directory of the build, whose name is another one each time.
_OF_THE_BUILD: Final = ("*.dist-info/sboms", "*.dist-info/direct_url.json")
# What pip knows of its files, many of which are not there any more.
_RECORDS: Final = ("*.dist-info/RECORD",)
# Launchers with the path of the builder's Python, which nobody else has.
_PROGRAMS: Final = "bin"
# They say for which Python a wheel was built, and what it had.
_OF_A_WHEEL: Final = ("WHEEL", "RECORD")
# Prints the files of the modules that all commands and roles of Ferroscope import, with SQLite and PostgreSQL.
_IMPORTS: Final = """\
import importlib, pkgutil, sys
from ferroscope_client.cli.main import commands

for one in commands().values():
    importlib.import_module(one.target.split(":")[0])
for name in "runtime db api contrib worker periodic bmc.redfish bmc.ipmi hooks doctor".split():
    package = importlib.import_module("ferroscope." + name)
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        left_out = ("migrations", "ironic", "rabbit", "swift", "inspector", "liveness")
        if not any(word in module.name for word in left_out):
            importlib.import_module(module.name)
import psycopg, sqlalchemy.dialects.postgresql, sqlalchemy.dialects.sqlite

files = [str(getattr(module, "__file__", "")) for module in list(sys.modules.values())]
print(*(file for file in files if file.endswith(".py")), sep="\\n")
"""
# Root writes no bytecode (-B), which would remain when the Debian package is removed.
_LAUNCHER: Final = """\
#!{interpreter} -B
import sys

from ferroscope_client.cli.main import main

sys.exit(main())
"""


class PackagingError(Exception):
    """What could not be made, and why."""


def run(*command: str | Path, output: bool = False, where: Path = ROOT) -> str:
    """Run a program; ``PackagingError`` if it fails. Return its standard output with ``output``."""
    words = [str(word) for word in command]
    try:
        done = subprocess.run(words, cwd=where, stdout=subprocess.PIPE if output else sys.stderr, text=True, check=True)
    except FileNotFoundError:
        raise PackagingError(f"{words[0]} is not installed: run tools/setup.sh packaging") from None
    except subprocess.CalledProcessError as exc:
        raise PackagingError(f"{' '.join(words[:3])} ... failed with exit code {exc.returncode}") from None
    return done.stdout or ""


@contextmanager
def everybodys_umask() -> Iterator[None]:
    """Have what is built readable for everybody, and the same, whatever the umask of the builder is."""
    before = os.umask(0o022)
    try:
        yield
    finally:
        os.umask(before)


def build_time() -> int:
    """Return the time that is written into what is built: SOURCE_DATE_EPOCH, or that of the last commit.

    An unpacked source distribution has no commits; its files have the time of the one of which it was made.
    """
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(given)
    if (unpacked := ROOT / "PKG-INFO").exists():
        return int(unpacked.stat().st_mtime)
    return int(run("git", "log", "-1", "--format=%ct", output=True))


def architecture() -> str:
    """Return Debian's name of this machine's processor, which is also that of OCI for those that are supported."""
    return run("dpkg", "--print-architecture", output=True).strip()


def install_pinned_packages(site: Path, python: str = PYTHON) -> None:
    """Install what requirements.txt has for this version of Python into the directory ``site``, with pip's records."""
    _check_python()
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as pinned:
        pinned.write("\n".join(pins(python)))
        pinned.flush()
        machine = os.uname().machine
        platforms = [f"manylinux_2_{minor}_{machine}" for minor in range(_GLIBC, 4, -1)]
        chosen = [f"--platform={name}" for name in (*platforms, f"manylinux2014_{machine}", "any")]
        _pip(
            site, "--require-hashes", "--no-deps", f"--python-version={python}", "--only-binary=:all:", *chosen,
            "-r", pinned.name,
        )  # fmt: skip
    _remove(site, _TESTS)
    _remove(site, (*_SOURCES, *_UNUSED, *_SETUPTOOLS, *_OF_THE_BUILD, _PROGRAMS))
    _remove_interpreter_lines(site)
    # The libraries that psycopg brings were edited by its maintainers' tools, which strip would undo.
    modules = [one for one in site.rglob("*.so") if not one.parent.name.endswith(".libs")]
    run("strip", "--strip-unneeded", *modules)


def add_python(site: Path, python: str) -> None:
    """Add what this version of Python needs to a directory that has the pinned packages for another one.

    Modules with machine code have the version in their name, so both lie side by side; everything else is the same.
    """
    with tempfile.TemporaryDirectory(prefix="ferroscope-python-") as name:
        other = Path(name)
        install_pinned_packages(other, python)
        for path in sorted(one for one in other.rglob("*") if one.is_file()):
            target = site / path.relative_to(other)
            if not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, target)
            elif target.read_bytes() != path.read_bytes() and target.name not in _OF_A_WHEEL:
                raise PackagingError(f"{path.relative_to(other)} for Python {python} differs from that for {PYTHON}")


def remove_records(site: Path) -> None:
    """Remove what pip notes of its files."""
    _remove(site, _RECORDS)


def _remove_interpreter_lines(site: Path) -> None:
    """Remove the first lines that name an interpreter: nobody runs a module of a package as a program."""
    for module in site.rglob("*.py"):
        if (content := module.read_bytes()).startswith(b"#!"):
            module.write_bytes(b"#" + content[content.index(b"\n") :])


def pins(python: str = PYTHON, lock: str = "requirements.txt") -> Iterator[str]:
    """Yield the lines of a lock file that are for this version of Python."""
    environment = {"python_version": python, "python_full_version": _FULL.get(python, f"{python}.0")}
    for entry in (ROOT / lock).read_text().replace("\\\n", " ").splitlines():
        pin, _, rest = entry.partition(" ; ")
        marker, _, hashes = rest.partition(" --")
        if not rest:
            yield entry
        elif Marker(marker).evaluate(environment):
            yield f"{pin} --{hashes}"


def install_ferroscope(site: Path) -> None:
    """Install Ferroscope and its client, without what they need, into the directory ``site``."""
    _check_python()
    with tempfile.TemporaryDirectory(prefix="ferroscope-source-") as name:
        source = Path(name) / "source"
        copy_source(source)
        _pip(site, "--no-deps", "--no-build-isolation", source / "client", source)
    remove_records(site)
    _remove(site, (*_OF_THE_BUILD, _PROGRAMS, "share"))  # what is shared has another place here


def copy_source(target: Path) -> None:
    """Copy the source: setuptools leaves directories where it builds, and takes what lies in old ones."""
    shutil.copytree(ROOT, target, ignore=_not_source)
    for path in (target, *target.rglob("*")):  # git has given them the modes of the builder's umask
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)


def imported_modules(sites: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """Return which modules the commands and roles import: of the standard library, and of ``sites``; relative paths."""
    path = os.pathsep.join(str(site) for site in sites)
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-S", "-c", _IMPORTS], env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    files = {Path(line) for line in done.stdout.splitlines()}
    standard = Path(sysconfig.get_path("stdlib"))
    return (
        sorted(one.relative_to(standard) for one in files if one.is_relative_to(standard)),
        sorted(one.relative_to(site) for site in sites for one in files if one.is_relative_to(site)),
    )


def compile_bytecode(root: Path, installed_as: str, modules: Iterable[str | Path]) -> None:
    """Compile these modules of the directory ``root``, which will be at the path ``installed_as`` and never change.

    Without bytecode, a process of the service starts with half as much processor time again.
    """
    for module in modules:
        if (root / module).exists():
            py_compile.compile(
                str(root / module),
                dfile=f"{installed_as}/{module}",
                doraise=True,
                invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
            )


def write_launcher(path: Path, interpreter: str) -> None:
    """Write the command ``ferroscope`` for this interpreter."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_LAUNCHER.format(interpreter=interpreter))
    path.chmod(0o755)


def _check_python() -> None:
    ours = f"{sys.version_info.major}.{sys.version_info.minor}"
    if ours != PYTHON:
        message = f"this is Python {ours}, and Debian 12 has {PYTHON}: run PYTHON=python{PYTHON} tools/setup.sh dev"
        raise PackagingError(message)


def _pip(site: Path, *what: str | Path) -> None:
    pip = (sys.executable, "-m", "pip", "install", "-qq", "--disable-pip-version-check", "--no-warn-conflicts")
    run(*pip, "--no-compile", "--upgrade", "--target", site, *what)


def _not_source(directory: str, names: list[str]) -> set[str]:
    """Leave out what git does not track at the top: environments, caches and builds."""
    if Path(directory) == ROOT:
        return {
            name
            for name in names
            if name.startswith(".") or name in ("build", "dist", "var", "share", "tests", "bench")
        }
    return {name for name in names if name.endswith(("_cache", "__pycache__", ".egg-info"))}


def _remove(site: Path, patterns: Sequence[str]) -> None:
    for pattern in patterns:
        for found in list(site.glob(pattern)):
            if found.is_dir():
                shutil.rmtree(found)
            elif found.exists():
                found.unlink()
