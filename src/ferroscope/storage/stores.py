"""The object stores for inspection data that are configured, and the reader of this data."""

from __future__ import annotations

from collections.abc import Mapping

from ferroscope.config.errors import SetupError, extra
from ferroscope.config.options import Settings
from ferroscope.config.plugins import backend
from ferroscope.contracts.remote import ObjectStore
from ferroscope.contracts.store import StopFlag
from ferroscope.db import Store
from ferroscope.storage.reader import Archive
from ferroscope_client.installed import PluginError


def build_archive(settings: Settings, store: Store, stop: StopFlag) -> Archive:
    """Return the reader of inspection data; ``stop`` interrupts its waits."""
    return Archive(store, build_object_stores(settings, stop))


def build_object_stores(settings: Settings, stop: StopFlag) -> Mapping[str, ObjectStore]:
    """Return the configured object stores by name; ``SetupError`` if the selected one is not configured."""
    object_stores: dict[str, ObjectStore] = {}
    storage = settings.storage
    if not (settings.s3.endpoint or settings.swift.auth_url or storage.backend in ("s3", "swift")):
        return object_stores
    from ferroscope.storage.object_http import RetryPolicy

    patience = RetryPolicy(stop=stop)
    if settings.s3.endpoint:
        from ferroscope.storage.s3 import S3Store

        object_stores["s3"] = S3Store(settings.s3, patience)
    if settings.swift.auth_url:
        from ferroscope.storage.object_http import problem

        if wrong := problem(settings.swift):
            raise SetupError(wrong)
        try:
            object_stores["swift"] = backend("storage.swift")(settings.swift, patience)
        except PluginError as exc:
            raise SetupError(str(exc), exc.advice) from exc
        except ImportError as exc:
            raise SetupError(
                f"[swift] needs the Python package {exc.name}, which is not installed",
                extra("openstack"),
            ) from exc
    if storage.backend in ("s3", "swift") and storage.backend not in object_stores:
        option = "endpoint" if storage.backend == "s3" else "auth_url"
        raise SetupError(f"[storage] backend is {storage.backend}, but [{storage.backend}] {option} is not set")
    return object_stores
