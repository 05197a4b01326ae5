"""Ramdisks that ``ferroscope ramdisk build`` has made, kept in the cache until what they are made by changes.

A build takes a minute of processor time. Debian's newer packages are no reason to build again.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any, Final

from ferroscope.contrib.ramdisk import content
from tests import ROOT

_SOURCES: Final = ROOT / "src" / "ferroscope" / "contrib" / "ramdisk"
_SMALL: Final = ("--kernel", "cloud")
PROGRAMS: Final = content.HERE / "root/usr/lib/ferroscope"
_USER: Final = 47110
# The users of its namespace.
_USERS: Final = 1_000_000
_AS_USER: Final = """\
mount --make-rprivate /
for file in passwd subuid subgid; do mount --bind "$1/$file" "/etc/$file"; done
cd "$1"
shift
exec setpriv --reuid="$0" --regid="$0" --clear-groups "$@"
"""


def cache() -> Path:
    """Return the directory of what the tests keep."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ferroscope"


def build(
    directory: Path,
    *options: str,
    environment: Mapping[str, str] | None = None,
    umask: int = -1,
    before: Sequence[str] = (),
) -> subprocess.CompletedProcess[str]:
    """Build a ramdisk as an operator does; ``environment``: changes to ours; ``before``: what starts the command."""
    command = [sys.executable, "-m", "ferroscope", "ramdisk", "build", "--directory", str(directory), *options]
    return subprocess.run(
        [*before, *command], capture_output=True, text=True, env=os.environ | (environment or {}), umask=umask,
        check=False,
    )  # fmt: skip


@contextmanager
def ordinary_user() -> Iterator[tuple[Path, list[str]]]:
    """Yield a home, and what starts a command there as a user who may have a user namespace, and nothing else.

    Only the command sees the files that say so: nothing on this host is changed.
    """
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="ferroscope-user-") as name:
        home = Path(name)
        files = {
            "passwd": f"{Path('/etc/passwd').read_text()}builder:x:{_USER}:{_USER}::{home}:/bin/sh\n",
            "subuid": f"builder:{_USERS}:65536\n",
            "subgid": f"builder:{_USERS}:65536\n",
        }
        for file, text in files.items():
            (home / file).write_text(text)
        os.chown(home, _USER, _USER)
        home.chmod(0o755)
        yield home, ["unshare", "--mount", "sh", "-euc", _AS_USER, str(_USER), name]


class _QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_args: object) -> None:
        pass


@contextmanager
def serving(directory: Path) -> Iterator[int]:
    """Serve a directory, as the web server of a boot host does; yield the port."""
    handler = functools.partial(_QuietHandler, directory=str(directory))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def make_key(path: Path) -> None:
    """Make a key of OpenSSH; the public half lies beside it."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)


def sign_list(directory: Path, text: str, key: Path, namespace: str = "ferroscope-collectors") -> None:
    """Write a list of collectors and its signature."""
    (directory / "list").write_text(text)
    (directory / "list.sig").unlink(missing_ok=True)
    command = ["ssh-keygen", "-q", "-Y", "sign", "-n", namespace, "-f", key, "list"]
    subprocess.run(command, cwd=directory, check=True)


def publish(directory: Path, key: Path, **scripts: str) -> str:
    """Write collectors with their signed list; return the list."""
    for name, script in scripts.items():
        (directory / name).write_text(script)
    text = subprocess.check_output(["sha256sum", *scripts], cwd=directory, text=True)
    sign_list(directory, text, key)
    return text


def load_agent() -> Any:
    """Return the program that starts the agent in the ramdisk, as a module."""
    loader = SourceFileLoader("ramdisk_agent", str(PROGRAMS / "agent"))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


def cached(*options: str) -> Path:
    """Return a directory with a ramdisk of these options, by default the smallest; it must not be changed."""
    options = options or _SMALL
    target = cache() / f"ramdisk-{_recipe(options)}"
    if target.exists():
        return target  # without waiting for a build of another one
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / "ramdisk.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            new = target.with_suffix(".new")
            shutil.rmtree(new, ignore_errors=True)
            done = build(new, *options)
            assert done.returncode == 0, done.stdout + done.stderr
            new.rename(target)
    return target


def _recipe(options: tuple[str, ...]) -> str:
    digest = hashlib.sha256("\0".join(options).encode())
    for path in sorted(one for one in _SOURCES.rglob("*") if one.is_file() and "__pycache__" not in one.parts):
        digest.update(f"{path.relative_to(_SOURCES)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:12]
