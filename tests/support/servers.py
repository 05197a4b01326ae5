"""Database servers for tests: one of each kind shared by the whole run, others to do harm to.

All of them belong to the ``keeper`` process; a test process only asks it.
"""

from __future__ import annotations

import atexit
import fcntl
import functools
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tests import ROOT
from tests.support.processes import IN_MEMORY, PATIENCE

_SOCKET: Final = "FERROSCOPE_TEST_KEEPER"
_SHARED_MEMORY: Final = Path("/dev/shm")  # Linux's own place for files in memory


def run_directory() -> Path:
    """Return the directory that the processes of this test run have in common."""
    return Path(os.environ[_SOCKET]).parent


def memory_directory() -> Path:
    """Return such a directory for small files that come and go; in memory, where the system has a place there.

    Outside of a test run (``tests.corpus.build``), it is one of this process, which removes it when it ends.
    """
    return run_directory() / IN_MEMORY if _SOCKET in os.environ else _own_directory()


def made_once(name: str, make: Callable[[Path], object]) -> Path:
    """Return a file or directory that ``make`` makes at a given path, once for all processes of the test run."""
    made = memory_directory() / name
    with (made.parent / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            half = made.parent / f"half-{name}"
            make(half)
            half.rename(made)
    return made


@functools.cache
def _own_directory() -> Path:
    own = Path(
        tempfile.mkdtemp(prefix="ferroscope-", dir=_SHARED_MEMORY if os.access(_SHARED_MEMORY, os.W_OK) else None)
    )
    atexit.register(shutil.rmtree, own, ignore_errors=True)
    return own


class KeeperProcess:
    """The keeper, as the process sees it that started it; that is the one that controls the test run."""

    def __init__(self) -> None:
        base = common_directory("tests")
        fast = _SHARED_MEMORY if os.access(_SHARED_MEMORY, os.W_OK) else base
        (base / IN_MEMORY).symlink_to(tempfile.mkdtemp(prefix="ferroscope-tests-", dir=fast))
        path = str(base / "socket")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen(64)
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.keeper", str(base), str(listener.fileno())],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                pass_fds=[listener.fileno()],
                start_new_session=True,  # an interrupt from the terminal is not for it
            )
        os.environ[_SOCKET] = path

    @property
    def pid(self) -> int:
        return self._process.pid

    def close(self) -> None:
        """End the keeper and all its servers; it removes the directory of the test run."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(PATIENCE)


class Server:
    """A database server that a test may stop, kill, freeze and start again: same port, same data.

    A ``volatile`` one is for tests that do it no harm: it does not wait for the disk.
    """

    def __init__(self, kind: str, name: str, *, volatile: bool = False) -> None:
        self.kind = kind
        self.name = name
        self._how = {"volatile": "yes"} if volatile else {}
        self.port = 0
        self.pid: int | None = None
        self.directory = Path()
        self.start()

    def start(self) -> None:
        """Start it where it does not run; return when it takes connections."""
        self._ask("start", kind=self.kind, **self._how)

    def stop(self) -> None:
        """End it in an orderly way."""
        self._ask("stop")

    def kill(self) -> None:
        """End all its processes with SIGKILL, as when its host loses power."""
        self._ask("kill")

    def freeze(self) -> None:
        """Stop all its processes with SIGSTOP: it is silent, but nobody is told."""
        self._ask("freeze")

    def thaw(self) -> None:
        """Let a frozen server go on."""
        self._ask("thaw")

    def restart(self) -> None:
        self.stop()
        self.start()

    def discard(self) -> None:
        """End it and remove its data."""
        self._ask("discard")

    def url(self, database: str) -> str:
        """Return the URL of one of its databases, or virtual hosts."""
        if self.kind == "rabbitmq":
            return f"rabbit://127.0.0.1:{self.port}/{database}"
        if self.kind == "postgresql":
            return f"postgresql+psycopg://ferroscope@127.0.0.1:{self.port}/{database}"
        return f"mysql+pymysql://root@127.0.0.1:{self.port}/{database}"

    def _ask(self, verb: str, **more: str) -> None:
        answer = _ask_keeper({"verb": verb, "name": self.name, **more})
        self.port, self.pid, self.directory = answer["port"], answer["pid"], Path(answer["directory"])


def common_directory(name: str) -> Path:
    """Return a new directory into which the servers' users can go too; ``name`` is a part of its name."""
    candidates = [Path(tempfile.gettempdir()).resolve(), Path("/tmp"), Path("/var/tmp")]
    open_to_all = (place for place in candidates if all(up.stat().st_mode & 0o001 for up in (place, *place.parents)))
    base = Path(tempfile.mkdtemp(prefix=f"ferroscope-{name}-", dir=next(open_to_all)))
    base.chmod(0o711)
    return base


def _ask_keeper(request: dict[str, str]) -> dict[str, Any]:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(480)  # the keeper starts one server after another
        connection.connect(os.environ[_SOCKET])
        with connection.makefile("rw") as stream:
            stream.write(json.dumps(request) + "\n")
            stream.flush()
            line = stream.readline()
    if not line:
        raise RuntimeError("the keeper of the tests' servers died; see its message above")
    answer: dict[str, Any] = json.loads(line)
    if "error" in answer:
        raise RuntimeError(answer["error"])
    return answer
