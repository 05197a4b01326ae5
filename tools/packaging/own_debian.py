"""A Debian of its own for ``make release``: what is installed and made there leaves this system as it was."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from tools.packaging.contents import ROOT, SUITE, PackagingError, build_time, run

_PACKAGES: Final = "ca-certificates,git,iproute2,make,mount,python3,python3-dev,python3-venv"
# How this system reaches mirrors and package indexes.
_FILES: Final = ("/etc/resolv.conf", "/etc/ssl/certs/ca-certificates.crt", "/etc/pip.conf")
_VARIABLES: Final = ("http_proxy", "https_proxy", "no_proxy", "PIP_CERT", "PIP_INDEX_URL", "SSL_CERT_FILE")
# Mounts end with the namespace, so nothing is mounted in what is removed afterwards.
_ENTER: Final = """\
mount --make-rprivate /
mount -t proc proc "$0/proc"
mount --rbind /dev "$0/dev"
root=$0
exec chroot "$root" "$@"
"""
_MAKE: Final = "tools/setup.sh dev packaging audit site helm && .venv/bin/python -m tools.packaging release-here"


def make_release(directory: Path, log: Path) -> list[Path]:
    """Make the release of the last commit there; return its files, in the directory. ``log`` gets what tools say."""
    if shutil.which("mmdebstrap") is None:
        raise PackagingError("mmdebstrap is not installed: apt install mmdebstrap")
    log.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="ferroscope-release-") as name, log.open("wb") as said:
        root = Path(name) / "debian"
        run("unshare", "--mount", "mmdebstrap", "--quiet", f"--include={_PACKAGES}", SUITE, root)
        for file in filter(os.path.exists, _FILES):
            shutil.copy(file, root / file[1:])
        run("git", "clone", "--quiet", "--no-local", f"file://{ROOT}", root / "src")
        own = {variable: os.environ[variable] for variable in _VARIABLES if variable in os.environ}
        own |= {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "SOURCE_DATE_EPOCH": str(build_time())}
        words = ["env", "-i", "--chdir=/src", *(f"{key}={value}" for key, value in own.items()), "sh", "-ec", _MAKE]
        enter = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-ec", _ENTER, root]
        if subprocess.run([*enter, *words], stdin=subprocess.DEVNULL, stderr=said, check=False).returncode:
            raise PackagingError(f"a step failed; the end of {log}:\n{_last_lines(log)}")
        shutil.rmtree(directory, ignore_errors=True)
        shutil.move(root / "src/dist", directory)
    return sorted(directory.iterdir())


def _last_lines(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-20:])
