"""The Debian packages, for the versions of Debian in ``contents.PYTHONS``; debhelper makes them, by ``debian/``.

``ferroscope`` has Ferroscope with its pinned Python packages below /usr/lib/ferroscope, units and configuration;
``ferroscope-boot-host`` what a host with dnsmasq needs beside it. They enable and start nothing: which roles a host has
is the operator's choice. Their own Python packages leave those of the system alone.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path
from typing import Final

from tools.docs.declarations import sample
from tools.packaging import contents, licenses, man_pages
from tools.packaging.contents import PYTHON, PYTHONS, VERSION, run

_HOME: Final = "usr/lib/ferroscope"
_CHANGES: Final = """\
ferroscope ({version}) unstable; urgency=medium

  * Release {release}: see the changelog of the release.

 -- The Ferroscope authors <ferroscope@localhost>  {date}
"""


@contents.everybodys_umask()
def build(directory: Path) -> list[Path]:
    """Write the packages into the directory; return their paths, that of the service first."""
    epoch = contents.build_time()
    os.environ["SOURCE_DATE_EPOCH"] = str(epoch)
    with tempfile.TemporaryDirectory(prefix="ferroscope-deb-") as name:
        source = Path(name) / "source"
        contents.copy_source(source)
        shutil.copytree(Path(__file__).parent / "debian", source / "debian")
        date = format_datetime(datetime.fromtimestamp(epoch, UTC))
        changes = _CHANGES.format(version=version(), release=VERSION, date=date)
        (source / "debian/changelog").write_text(changes)
        _write_files(source, epoch)
        for path in source.rglob("*"):
            os.utime(path, (epoch, epoch), follow_symlinks=False)
        run("dpkg-buildpackage", "--build=binary", "--no-pre-clean", "--no-check-builddeps", "--no-sign", where=source)
        directory.mkdir(parents=True, exist_ok=True)
        return [Path(shutil.copy(package, directory)) for package in sorted(Path(name).glob("*.deb"), reverse=True)]


def version() -> str:
    """Return the version in Debian's form, where what comes before a release has a tilde."""
    return VERSION.replace(".dev", "~dev").replace("rc", "~rc") + "-1"


def _write_files(source: Path, epoch: int) -> None:
    """Write what the source does not have: Python packages, man pages, completions and the commented options."""
    root = source / "files"
    # One directory for all versions of Python, each of which finds it by a link of its name.
    site = root / _HOME / "lib/python3/site-packages"
    site.mkdir(parents=True)
    contents.install_pinned_packages(site)
    for python in PYTHONS.values():
        if python != PYTHON:
            contents.add_python(site, python)
    (source / "debian/copyright").write_text(licenses.copyright_file(site))
    contents.install_ferroscope(site)
    # What makes a directory a virtual environment.
    (root / _HOME / "pyvenv.cfg").write_text("home = /usr/bin\ninclude-system-site-packages = false\n")
    contents.write_launcher(root / _HOME / "bin/ferroscope", f"/{_HOME}/bin/python")
    # No configuration file is the package's: an upgrade would ask about each word that it changes there.
    (root / "etc/ferroscope/ferroscope.conf.d").mkdir(parents=True)
    examples = root / "usr/share/doc/ferroscope/examples"
    examples.mkdir(parents=True)
    (examples / "ferroscope.conf").write_text(sample())
    man_pages.write(root / "usr/share", epoch)
    zsh = root / "usr/share/zsh"
    (zsh / "site-functions").rename(zsh / "vendor-completions")  # Debian's name for it
