"""The source distribution and the wheel, with man pages and completions."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from tools.packaging import contents, man_pages
from tools.packaging.archive import archive
from tools.packaging.contents import run

_BUILD = "import setuptools.build_meta as backend, sys; getattr(backend, sys.argv[1])(sys.argv[2])"


@contents.everybodys_umask()
def build(directory: Path) -> list[Path]:
    """Write both into ``directory`` and return their paths; the wheel is built out of the source distribution."""
    epoch = contents.build_time()
    os.environ["SOURCE_DATE_EPOCH"] = str(epoch)
    directory = directory.resolve()
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="ferroscope-dist-") as name:
        source = Path(name) / "source"
        contents.copy_source(source)
        man_pages.write(source / "share", epoch)
        place = Path(name)
        # What setuptools says of each file is not of interest.
        run(sys.executable, "-c", _BUILD, "build_sdist", place, where=source, output=True)
        built = place / f"ferroscope-{contents.VERSION}.tar.gz"
        run("tar", "-xf", built, where=place)
        unpacked = place / built.name.removesuffix(".tar.gz")
        archive(unpacked, directory / built.name)  # its own has the times of the build
        run(sys.executable, "-c", _BUILD, "build_wheel", directory, where=unpacked, output=True)
    return [directory / built.name, directory / f"ferroscope-{contents.VERSION}-py3-none-any.whl"]
