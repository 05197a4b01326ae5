"""``make release``: everything that a release is published with, in one directory, checked, with checksums.

The same commit, lock file and Debian packages give the same files, but for the signature.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from tools.packaging import contents, deb, dist, image, materials
from tools.packaging.archive import archive
from tools.packaging.contents import ROOT, VERSION, PackagingError, run

SUMS: Final = "SHA256SUMS"
_AUDIT: Final = ROOT / ".audit-venv/bin"
_BLOCK: Final = 1 << 20
_NAME: Final = f"ferroscope-{VERSION}"


def make(directory: Path, say: Callable[[str], None]) -> None:
    """Write everything but the signature into the directory, which is emptied first; say a line a step."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    for name, step in _STEPS.items():
        began = time.monotonic()
        step(directory)
        say(f"{time.monotonic() - began:6.0f} s  {name}")
    files = sorted(one for one in directory.iterdir() if one.is_file())
    (directory / SUMS).write_text("".join(f"{checksum(one)}  {one.name}\n" for one in files))


def has_key(key: str) -> None:
    """``PackagingError`` if GnuPG cannot sign with this key, which would else be found out when all has been made."""
    run("gpg", "--batch", "--list-secret-keys", key, output=True)


def sign(directory: Path, key: str) -> Path:
    """Sign the checksums with this key of GnuPG; return the file of the signature."""
    target = directory / f"{SUMS}.asc"
    target.unlink(missing_ok=True)
    run("gpg", "--batch", "--local-user", key, "--armor", "--output", target, "--detach-sign", directory / SUMS)
    run("gpg", "--batch", "--verify", target, directory / SUMS)
    return target


def table(files: list[Path]) -> Iterator[str]:
    """Yield one line a file: name, size, checksum."""
    width = max(len(one.name) for one in files)
    yield f"{'file':{width}}  {'bytes':>11}  sha256"
    for one in files:
        yield f"{one.name:{width}}  {one.stat().st_size:11,}  {checksum(one)}"


def checksum(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def changed() -> list[str]:
    """Return what differs from the commit of which the release is said to be."""
    listed = run("git", "status", "--porcelain", output=True)
    return [line[3:] for line in listed.splitlines()]


def tag_of(commit: str = "HEAD", where: Path = ROOT) -> str:
    """Return the tag of this version if the commit has it, "" if nothing has it yet.

    ``PackagingError`` if it is at another commit: users would get two releases with one name.
    """
    tag = f"v{VERSION}"
    if tag in run("git", "tag", "--points-at", commit, output=True, where=where).split():
        return tag
    if run("git", "tag", "--list", tag, output=True, where=where):
        raise PackagingError(
            f"{tag} is the tag of another commit: check that out, or give the next release its version"
        )
    return ""


def _python(directory: Path) -> None:
    files = dist.build(directory)
    with tempfile.TemporaryDirectory(prefix="ferroscope-again-") as name:
        for one, again in zip(files, dist.build(Path(name)), strict=True):
            if checksum(one) != checksum(again):
                raise PackagingError(f"{one.name}: a second build of the same source differs")
    run(_AUDIT / "twine", "check", "--strict", *files)
    shutil.copyfile(ROOT / "requirements.txt", directory / "requirements.txt")


def _installed(directory: Path) -> None:
    """Install the wheel and the pinned packages where nothing else is, inspect two machines, and list the packages."""
    with tempfile.TemporaryDirectory(prefix="ferroscope-venv-") as name:
        place = Path(name)
        run(sys.executable, "-m", "venv", place / "venv")
        pip = (place / "venv/bin/python", "-m", "pip", "install", "-q", "--disable-pip-version-check")
        run(*pip, "--require-hashes", "-r", ROOT / "requirements.txt")
        client = next(directory.glob("ferroscope_client-*.whl"))
        run(*pip, "--no-index", client, f"{directory / _NAME}-py3-none-any.whl[postgresql,mysql,openstack,kubernetes]")
        program = place / "venv/bin/ferroscope"
        said = run(program, "--version", output=True).split()[-1]
        if said != VERSION:
            raise PackagingError(f"the installed wheel says that it is {said}, not {VERSION}")
        if "All 2 finished" not in run(program, "demo", "--nodes", "2", output=True, where=place):
            raise PackagingError("the installed wheel does not inspect simulated machines: ferroscope demo --nodes 2")
        materials.write(directory / f"{_NAME}.cdx.json", place / "venv/bin/python")


def _debian(directory: Path) -> None:
    files = deb.build(directory)
    run("lintian", "--allow-root", "--fail-on", "error,warning", *files)


def _image(directory: Path) -> None:
    image.build(directory / f"{_NAME}-{contents.architecture()}.oci.tar")


def chart(directory: Path) -> None:
    source = ROOT / "deploy/helm/ferroscope"
    run(ROOT / ".helm/helm", "lint", "--strict", source)
    with tempfile.TemporaryDirectory(prefix="ferroscope-chart-") as name:
        run(ROOT / ".helm/helm", "package", source, "--destination", name)
        (packed,) = Path(name).glob("*.tgz")
        # Helm writes the time of its call into the archive.
        run("tar", "-xf", packed, where=Path(name))
        archive(Path(name) / "ferroscope", directory / packed.name)


def _site(directory: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="ferroscope-site-") as name:
        place = Path(name) / f"{_NAME}-documentation"
        environment = {**os.environ, "SOURCE_DATE_EPOCH": str(contents.build_time()), "PYTHONHASHSEED": "0"}
        command = (ROOT / ".site-venv/bin/sphinx-build", "-q", "-W", "--keep-going", "-c", ROOT / "tools/site")
        done = subprocess.run(
            [*command, "-d", Path(name) / "doctrees", ROOT / "docs", place], env=environment, check=False
        )
        if done.returncode:
            raise PackagingError("the documentation has errors: python3 -m tools site")
        archive(place, directory / f"{place.name}.tar.gz")


_STEPS: Final[dict[str, Callable[[Path], None]]] = {
    "source distribution and wheel, twice": _python,
    "the wheel in an empty environment, and its software bill of materials": _installed,
    "Debian packages": _debian,
    "OCI image": _image,
    "Helm chart": chart,
    "documentation": _site,
}
