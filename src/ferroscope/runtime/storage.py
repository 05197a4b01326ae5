"""Where inspection data is kept: the object stores that are configured, what reads them, what moves data there.

An object store that is not configured is not imported either.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ferroscope.config.options import Settings
from ferroscope.contracts.queue import Clock, StopFlag
from ferroscope.contracts.remote import ObjectStore
from ferroscope.runtime.backend import Backend
from ferroscope.runtime.life import SetupError
from ferroscope.storage.reader import Archive

if TYPE_CHECKING:
    from ferroscope.periodic.singleton import PeriodicTask


def build_archive(settings: Settings, backend: Backend, stop: StopFlag) -> Archive:
    """Return what reads inspection data, wherever it is; ``stop`` ends its waits."""
    return Archive(backend.store, build_shelves(settings, stop))


def build_shelves(settings: Settings, stop: StopFlag) -> Mapping[str, ObjectStore]:
    """Return the object stores that are configured, by name; ``SetupError`` where the one to use is not."""
    shelves: dict[str, ObjectStore] = {}
    storage = settings.storage
    if not (settings.s3.endpoint or settings.swift.auth_url or storage.backend in ("s3", "swift")):
        return shelves
    from ferroscope.storage.object_http import Patience

    patience = Patience(timeout=storage.timeout, retries=storage.retries, pause=storage.retry_pause, stop=stop)
    if settings.s3.endpoint:
        from ferroscope.storage.s3 import S3Store

        shelves["s3"] = S3Store(settings.s3, patience)
    if settings.swift.auth_url:
        from ferroscope.storage.object_http import problem
        from ferroscope.storage.swift import SwiftStore

        if wrong := problem(settings.swift):
            raise SetupError(wrong)
        try:
            shelves["swift"] = SwiftStore(settings.swift, patience)
        except ImportError as exc:
            raise SetupError(
                f"[swift] needs the Python package {exc.name}, which is not installed",
                "install Ferroscope with [swift]",
            ) from exc
    if storage.backend in ("s3", "swift") and storage.backend not in shelves:
        option = "endpoint" if storage.backend == "s3" else "auth_url"
        raise SetupError(f"[storage] backend is {storage.backend}, but [{storage.backend}] {option} is not set")
    return shelves


def build_archiving(
    settings: Settings, backend: Backend, shelves: Mapping[str, ObjectStore], *, clock: Clock, process: str
) -> PeriodicTask:
    """Return the task that moves data to the object store, or drops it where none is kept."""
    from ferroscope.periodic.archiving import Archiving, newest_inventory, nothing
    from ferroscope.storage.mover import Mover

    raid = any(name.lstrip("?").replace("_", "-") == "raid-device" for name in settings.inspector.hooks)
    return Archiving(
        backend.store,
        Mover(backend.store, Archive(backend.store, shelves), process=process),
        keep=settings.storage.backend,
        period=settings.storage.period,
        clock=clock,
        longest_pause=settings.storage.longest_pause,
        wanted=newest_inventory if raid else nothing,
    )
