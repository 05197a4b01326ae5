"""The Debian package: Ferroscope with its pinned Python packages below /usr/lib/ferroscope, units, and configuration.

It enables and starts nothing: which roles a host has is the operator's choice. Its own Python packages leave those of
the system alone.
"""

from __future__ import annotations

import gzip
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tools.docs.declarations import sample
from tools.packaging import contents, man_pages
from tools.packaging.contents import INTERPRETER, PYTHON, ROOT, VERSION, run

_HOME: Final = "usr/lib/ferroscope"
_SITE: Final = f"{_HOME}/lib/python{PYTHON}/site-packages"
_SCRIPTS: Final = Path(__file__).parent / "debian"
_COPYRIGHT: Final = """\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: ferroscope

Files: *
Copyright: The Ferroscope authors
License: Apache-2.0
 On Debian systems, the text of this license is in /usr/share/common-licenses/Apache-2.0.
Comment:
 The Python packages below /usr/lib/ferroscope have licenses of their own, in their *.dist-info directories.
"""


def build(target: Path) -> None:
    """Write the package."""
    epoch = contents.build_time()
    with tempfile.TemporaryDirectory(prefix="ferroscope-deb-") as name:
        root = Path(name) / "root"
        root.mkdir()
        _programs(root)
        _files(root, epoch)
        (root / "DEBIAN").mkdir()
        for script in ("postinst", "prerm", "postrm"):
            shutil.copy(_SCRIPTS / script, root / "DEBIAN" / script)
        (root / "DEBIAN/conffiles").write_text("/etc/ferroscope/ferroscope.conf\n")
        (root / "DEBIAN/control").write_text(_control(root))
        _normalize(root, epoch)
        target.parent.mkdir(parents=True, exist_ok=True)
        os.environ["SOURCE_DATE_EPOCH"] = str(epoch)
        run("dpkg-deb", "--root-owner-group", "-Zxz", "-z3", "--build", root, target)


def version() -> str:
    """Return the version in Debian's form, where what comes before a release has a tilde."""
    return VERSION.replace(".dev", "~dev").replace("rc", "~rc") + "-1"


def _programs(root: Path) -> None:
    site = root / _SITE
    site.mkdir(parents=True)
    contents.install_pinned_packages(site)
    contents.install_ferroscope(site)
    shutil.rmtree(site / "bin", ignore_errors=True)
    # What makes a directory a virtual environment.
    (root / _HOME / "pyvenv.cfg").write_text(
        f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {PYTHON}\n"
    )
    (root / _HOME / "bin").mkdir()
    for link in ("python", "python3"):
        (root / _HOME / "bin" / link).symlink_to(INTERPRETER)
    contents.write_launcher(root / _HOME / "bin/ferroscope", f"/{_HOME}/bin/python")
    (root / "usr/bin").mkdir(parents=True)
    (root / "usr/bin/ferroscope").symlink_to("../lib/ferroscope/bin/ferroscope")
    _, others = contents.imported_modules((site,))
    own = [one.relative_to(site) for one in site.glob("ferroscope*/**/*.py")]
    contents.compile_bytecode(site, f"/{_SITE}", {*others, *own})


def _files(root: Path, epoch: int) -> None:
    units = root / "lib/systemd/system"
    units.mkdir(parents=True)
    for unit in sorted((ROOT / "deploy/systemd").glob("*.service")):
        text = unit.read_text().replace("/opt/ferroscope/bin/ferroscope", "/usr/bin/ferroscope")
        (units / unit.name).write_text(text)
    shutil.copytree(ROOT / "deploy/tmpfiles.d", root / "usr/lib/tmpfiles.d")
    documents = root / "usr/share/doc/ferroscope"
    documents.mkdir(parents=True)
    shutil.copytree(ROOT / "deploy", documents / "examples")
    for kind in ("tutorial", "how-to", "explanation", "reference"):  # for ferroscope docs
        (documents / kind).mkdir()
        for page in sorted((ROOT / "docs" / kind).glob("*.md")):
            shutil.copyfile(page, documents / kind / page.name)
    (documents / "copyright").write_text(_COPYRIGHT)
    (documents / "changelog.gz").write_bytes(gzip.compress((ROOT / "CHANGELOG.md").read_bytes(), mtime=0))
    configuration = root / "etc/ferroscope/ferroscope.conf"
    configuration.parent.mkdir(parents=True)
    configuration.write_text(sample())
    man_pages.write(root / "usr/share", epoch)
    for page in sorted((root / "usr/share/man/man1").iterdir()):
        page.with_suffix(".1.gz").write_bytes(gzip.compress(page.read_bytes(), mtime=0))
        page.unlink()
    zsh = root / "usr/share/zsh"
    (zsh / "site-functions").rename(zsh / "vendor-completions")  # Debian's name for it


def _control(root: Path) -> str:
    size = sum(one.stat().st_size for one in root.rglob("*") if one.is_file() and not one.is_symlink()) // 1024
    return "\n".join([
        "Package: ferroscope",
        f"Version: {version()}",
        f"Architecture: {contents.architecture()}",
        "Maintainer: The Ferroscope authors <ferroscope@localhost>",
        f"Installed-Size: {size}",
        f"Depends: adduser, python{PYTHON}, libc6 (>= 2.36)",
        "Recommends: ipmitool",
        "Suggests: dnsmasq, nftables, pci.ids, postgresql | mariadb-server",
        "Section: admin",
        "Priority: optional",
        "Description: highly available inspection of bare-metal machines",
        " Ferroscope boots machines into a ramdisk, receives the inventory that the ramdisk",
        " collects, and serves it with the inspection APIs of OpenStack Ironic. It needs a",
        " database only: SQLite, PostgreSQL or MariaDB.",
        "",
    ])  # fmt: skip


def _normalize(root: Path, epoch: int) -> None:
    """Give everything the modes and the times of a package, whatever the umask and the clock of the builder are."""
    for path in _below(root):
        if not path.is_symlink():
            runs = path.is_dir() or path.parent.name == "bin" or path.name in ("postinst", "prerm", "postrm")
            path.chmod(0o755 if runs or path.name == "check-haproxy" else 0o644)
        os.utime(path, (epoch, epoch), follow_symlinks=False)
    (root / "etc/ferroscope").chmod(0o750)
    (root / "etc/ferroscope/ferroscope.conf").chmod(0o640)


def _below(root: Path) -> Iterator[Path]:
    yield root
    yield from sorted(root.rglob("*"))
