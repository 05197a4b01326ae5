"""The Debian packages, for the two versions of Debian in ``contents.PYTHONS``.

``ferroscope`` has Ferroscope with its pinned Python packages below /usr/lib/ferroscope, units and configuration;
``ferroscope-boot-host`` what a host with dnsmasq needs beside it. They enable and start nothing: which roles a host has
is the operator's choice. Their own Python packages leave those of the system alone.
"""

from __future__ import annotations

import gzip
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path
from typing import Final

from tools.docs.declarations import sample
from tools.packaging import contents, man_pages
from tools.packaging.contents import PYTHON, PYTHONS, ROOT, SUITE, VERSION, run

_HOME: Final = "usr/lib/ferroscope"
# One directory for all versions of Python, each of which finds it by the name that it looks for.
_SITE: Final = f"{_HOME}/lib/python3/site-packages"
_UNITS: Final = "usr/lib/systemd/system"
_SCRIPTS: Final = Path(__file__).parent / "debian"
MAINTAINER: Final = "The Ferroscope authors <ferroscope@localhost>"
# What is for hosts with dnsmasq, by the beginning of its name.
_BOOT_HOST: Final = "ferroscope-pxe-"
_CHANGES: Final = """\
{package} ({version}) unstable; urgency=medium

  * Release {release}: see the changelog of the release.

 -- {maintainer}  {date}
"""


def build(directory: Path) -> list[Path]:
    """Write the packages into the directory; return their paths."""
    os.environ["SOURCE_DATE_EPOCH"] = str(contents.build_time())
    return [_package("ferroscope", directory, _ferroscope), _package("ferroscope-boot-host", directory, _boot_host)]


def version() -> str:
    """Return the version in Debian's form, where what comes before a release has a tilde."""
    return VERSION.replace(".dev", "~dev").replace("rc", "~rc") + "-1"


def file_name(package: str) -> str:
    return f"{package}_{version()}_{_architecture(package)}.deb"


def _architecture(package: str) -> str:
    return contents.architecture() if package == "ferroscope" else "all"


def _package(name: str, directory: Path, fill: Callable[[Path], None]) -> Path:
    epoch = contents.build_time()
    with tempfile.TemporaryDirectory(prefix="ferroscope-deb-") as work:
        root = Path(work) / "root"
        documents = root / "usr/share/doc" / name
        documents.mkdir(parents=True)
        fill(root)
        shutil.copyfile(_SCRIPTS / "copyright", documents / "copyright")
        changes = _CHANGES.format(
            package=name, version=version(), release=VERSION, maintainer=MAINTAINER,
            date=format_datetime(datetime.fromtimestamp(epoch, UTC)),
        )  # fmt: skip
        _compressed(documents / "changelog.Debian.gz", changes.encode())
        overrides = _SCRIPTS / f"{name}.lintian-overrides"
        if overrides.exists():
            (root / "usr/share/lintian/overrides").mkdir(parents=True)
            shutil.copyfile(overrides, root / "usr/share/lintian/overrides" / name)
        (root / "DEBIAN").mkdir()
        for script in ("postinst", "prerm", "postrm"):
            shutil.copyfile(_SCRIPTS / f"{name}.{script}", root / "DEBIAN" / script)
        (root / "DEBIAN/control").write_text(_control(name, root))
        if (root / "etc").exists():
            files = sorted(one for one in (root / "etc").rglob("*") if one.is_file())
            (root / "DEBIAN/conffiles").write_text("".join(f"/{one.relative_to(root)}\n" for one in files))
        _normalize(root, epoch)
        directory.mkdir(parents=True, exist_ok=True)
        target = directory / file_name(name)
        run("dpkg-deb", "--root-owner-group", "-Zxz", "-z3", "--build", root, target)
    return target


def _ferroscope(root: Path) -> None:
    documents = root / "usr/share/doc/ferroscope"
    _programs(root)
    _units(root, boot_host=False)
    shutil.copytree(ROOT / "deploy", documents / "examples")
    for kind in ("tutorial", "how-to", "explanation", "reference"):  # for ferroscope docs
        (documents / kind).mkdir()
        for page in sorted((ROOT / "docs" / kind).glob("*.md")):
            shutil.copyfile(page, documents / kind / page.name)
    _compressed(documents / "changelog.gz", (ROOT / "CHANGELOG.md").read_bytes())
    configuration = root / "etc/ferroscope/ferroscope.conf"
    configuration.parent.mkdir(parents=True)
    configuration.write_text(sample())
    man_pages.write(root / "usr/share", contents.build_time())
    for page in sorted((root / "usr/share/man/man1").iterdir()):
        _compressed(page.with_suffix(".1.gz"), page.read_bytes())
        page.unlink()
    zsh = root / "usr/share/zsh"
    (zsh / "site-functions").rename(zsh / "vendor-completions")  # Debian's name for it


def _boot_host(root: Path) -> None:
    _units(root, boot_host=True)
    shutil.copytree(ROOT / "deploy/tmpfiles.d", root / "usr/lib/tmpfiles.d")


def _programs(root: Path) -> None:
    site = root / _SITE
    site.mkdir(parents=True)
    others = {suite: python for suite, python in PYTHONS.items() if suite != SUITE}
    contents.install_pinned_packages(site)
    for python in others.values():
        contents.add_python(site, python)
    contents.install_ferroscope(site)
    for python in PYTHONS.values():
        (root / _HOME / f"lib/python{python}").symlink_to("python3")
    # What makes a directory a virtual environment.
    (root / _HOME / "pyvenv.cfg").write_text(
        f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {PYTHON}\n"
    )
    (root / _HOME / "bin").mkdir()
    for link in ("python", "python3"):
        (root / _HOME / "bin" / link).symlink_to("../../../bin/python3")
    contents.write_launcher(root / _HOME / "bin/ferroscope", f"/{_HOME}/bin/python")
    (root / "usr/bin").mkdir(parents=True)
    (root / "usr/bin/ferroscope").symlink_to("../lib/ferroscope/bin/ferroscope")
    _, imported = contents.imported_modules((site,))
    own = [one.relative_to(site) for one in site.glob("ferroscope*/**/*.py")]
    modules = sorted({*imported, *own})
    contents.compile_bytecode(site, f"/{_SITE}", modules)
    for suite in others:
        contents.compile_for(suite, site, f"/{_SITE}", modules)


def _units(root: Path, *, boot_host: bool) -> None:
    (root / _UNITS).mkdir(parents=True)
    for unit in sorted((ROOT / "deploy/systemd").glob("*.service")):
        if unit.name.startswith(_BOOT_HOST) == boot_host:
            text = unit.read_text().replace("/opt/ferroscope/bin/ferroscope", "/usr/bin/ferroscope")
            (root / _UNITS / unit.name).write_text(text)


def _control(name: str, root: Path) -> str:
    size = sum(one.stat().st_size for one in root.rglob("*") if one.is_file() and not one.is_symlink()) // 1024
    fields = {"version": version(), "architecture": _architecture(name), "size": size, "maintainer": MAINTAINER}
    return (_SCRIPTS / f"{name}.control").read_text().format(**fields)


def _compressed(path: Path, data: bytes) -> None:
    path.write_bytes(gzip.compress(data, compresslevel=9, mtime=0))


def _normalize(root: Path, epoch: int) -> None:
    """Give everything the modes and the times of a package, whatever the umask and the clock of the builder are."""
    for path in _below(root):
        if not path.is_symlink():
            runs = path.is_dir() or path.parent.name == "bin" or path.name in ("postinst", "prerm", "postrm")
            path.chmod(0o755 if runs or path.name == "check-haproxy" else 0o644)
        os.utime(path, (epoch, epoch), follow_symlinks=False)
    if (root / "etc/ferroscope").exists():
        (root / "etc/ferroscope").chmod(0o750)
        (root / "etc/ferroscope/ferroscope.conf").chmod(0o640)


def _below(root: Path) -> Iterator[Path]:
    yield root
    yield from sorted(root.rglob("*"))
