"""The source distributions and the wheels of the service, with man pages and completions, and of its client."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Final

from tools.packaging import contents, man_pages
from tools.packaging.archive import archive
from tools.packaging.contents import run

_BUILD: Final = "import setuptools.build_meta as backend, sys; getattr(backend, sys.argv[1])(sys.argv[2])"
# The service's goes first: its source contains that of the client, where a build leaves files.
_DISTRIBUTIONS: Final = {"ferroscope": ".", "ferroscope_client": "client"}


@contents.everybodys_umask()
def build(directory: Path) -> list[Path]:
    """Write them into ``directory`` and return their paths; a wheel is built out of its source distribution."""
    epoch = contents.build_time()
    os.environ["SOURCE_DATE_EPOCH"] = str(epoch)
    directory = directory.resolve()
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="ferroscope-dist-") as name:
        source = Path(name) / "source"
        contents.copy_source(source)
        man_pages.write(source / "share", epoch)
        return [
            file
            for distribution, folder in _DISTRIBUTIONS.items()
            for file in _build(f"{distribution}-{contents.VERSION}", source / folder, Path(name), directory)
        ]


def _build(title: str, source: Path, place: Path, directory: Path) -> list[Path]:
    # What setuptools says of each file is not of interest.
    run(sys.executable, "-c", _BUILD, "build_sdist", place, where=source, output=True)
    run("tar", "-xf", place / f"{title}.tar.gz", where=place)
    packed = directory / f"{title}.tar.gz"
    archive(place / title, packed)  # its own has the times of the build
    run(sys.executable, "-c", _BUILD, "build_wheel", directory, where=place / title, output=True)
    return [packed, directory / f"{title}-py3-none-any.whl"]
