"""Something that goes on in a thread of its own while a block runs, such as watching it, and ends with the block."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self


class Beside:
    """``_run`` runs beside the block, and returns when ``_stop`` is set, at the end of the block at the latest."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=type(self).__name__, daemon=True)

    def _run(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
