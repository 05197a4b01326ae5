"""Files that are read again when they change: users, roles, policies, keys and certificates.

A new file takes effect with the next check. If it is missing or invalid, that is logged, the previous content stays in
use, and the file is read again later: the cause may pass without a change of the file. SIGHUP rereads all of them, see
``reload``.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, Final, Generic, TypeVar

import structlog

from ferroscope_client.core.text_files import NotTextError, text_of

T = TypeVar("T")

# Seconds between two checks of a file, and between two tries to read an unusable one.
_INTERVAL, _TRY_AGAIN = 1.0, 30.0
_log = structlog.get_logger(__name__)


class ConfigFileError(Exception):
    """A file cannot be used; the message says why without quoting secrets, ``advice`` what to do."""

    def __init__(self, message: str, advice: str = "") -> None:
        self.advice = advice
        super().__init__(message)


def read_text(path: Path) -> str:
    """Return the content of a text file; ``ConfigFileError``, ``OSError``."""
    try:
        return text_of(path.read_bytes())
    except NotTextError as exc:
        raise ConfigFileError(str(exc)) from None


class Followed(Generic[T]):
    """What ``read`` returns for ``files``. At the start, the caller gets any exception of ``read``. Thread-safe.

    ``what`` names it in the log. ``clock`` is monotonic; ``interval``: seconds between two checks.
    """

    def __init__(
        self,
        what: str,
        files: Sequence[Path],
        read: Callable[[], T],
        *,
        clock: Callable[[], float] = time.monotonic,
        interval: float = _INTERVAL,
    ) -> None:
        self._what, self._files, self._read = what, files, read
        self._clock, self._interval = clock, interval
        self._lock = Lock()
        self._stamp = self._seen = self._look()
        self._value = read()
        self._look_at = clock() + interval
        self._why, self._try_at = "", 0.0  # of the last try that failed
        _ALL.add(self)

    @property
    def value(self) -> T:
        """What the files contain now."""
        if self._clock() >= self._look_at:
            with self._lock:
                self._refresh()
        return self._value

    def reload(self) -> None:
        """Read the files again now, even if they look the same."""
        with self._lock:
            self._seen, self._why = self._look(), ""
            self._read_again()

    def _refresh(self) -> None:
        now = self._clock()
        if now < self._look_at:  # another thread has checked meanwhile
            return
        self._look_at = now + self._interval
        before, self._seen = self._seen, self._look()
        # Several files are replaced one by one, so they must be equal in two checks.
        settled = len(self._files) == 1 or self._seen == before
        if (self._seen != self._stamp and settled) or (self._why and now >= self._try_at):
            self._read_again()

    def _read_again(self) -> None:
        changed, self._stamp = self._seen != self._stamp, self._seen
        file = str(self._files[0]) if self._files else ""
        try:
            self._value = self._read()
        except Exception as exc:  # noqa: BLE001  # whatever is wrong with a file must not stop the service
            before, self._why = self._why, str(exc) or type(exc).__name__
            self._try_at = self._clock() + _TRY_AGAIN
            if changed or self._why != before:
                summary = "cannot use the changed file; its previous content stays in use"
                _log.error(summary, content=self._what, file=file, why=self._why)
        else:
            self._why = ""
            _log.info("file read again", content=self._what, file=file)

    def _look(self) -> list[tuple[int, ...] | None]:
        return [_stamp(path) for path in self._files]


_ALL: Final[weakref.WeakSet[Followed[Any]]] = weakref.WeakSet()


def reload() -> None:
    """Read all files that this process follows again."""
    for followed in list(_ALL):
        followed.reload()


def _stamp(path: Path) -> tuple[int, ...] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    # A changed owner, mode or access list does not show in the time, so an unreadable file may be readable now.
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
