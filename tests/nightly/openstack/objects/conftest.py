"""Object stores on a real Swift: by its own API, and by the S3 API that it speaks too."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from typing import Final

import pytest

from ferroscope.config.options import S3Settings, SwiftSettings
from ferroscope.contracts.remote import ObjectStore
from ferroscope.contrib.openstack.swift import SwiftStore
from ferroscope.storage.object_http import RetryPolicy
from ferroscope.storage.s3 import S3Store
from tests.nightly.openstack.objects.site import Site
from tests.support.servers import Server

BACKENDS: Final = ("s3", "swift")
_PATIENT: Final = RetryPolicy(timeout=20.0, retries=3)
_numbers = itertools.count(1)


def s3_settings(server: Server, **changes: str) -> S3Settings:
    """Return what reaches the server by S3; the bucket is a new one."""
    bucket = f"b{os.getpid()}-{next(_numbers)}"
    base = {"endpoint": f"http://127.0.0.1:{server.port}", "bucket": bucket, "prefix": "p/"}
    return S3Settings(**{**base, "access_key": "test:tester", "secret_key": "testing", **changes})


def swift_settings(server: Server, **changes: str) -> SwiftSettings:
    """Return what reaches the server by Swift's own API; the container is a new one."""
    base = {"auth_url": f"http://127.0.0.1:{server.port}/auth/v1.0", "auth_version": "1", "prefix": "p/"}
    named = {"username": "test:tester", "password": "testing", "container": f"c{os.getpid()}-{next(_numbers)}"}
    return SwiftSettings(**{**base, **named, **changes})  # type: ignore[arg-type]


def make_bucket(settings: S3Settings) -> None:
    """Make the bucket, as an operator does."""
    maker = S3Store(S3Settings(**{**_fields(settings), "prefix": ""}), RetryPolicy(timeout=20.0, retries=5))
    answer = maker._send("PUT", "", b"")
    assert answer.status == 200, answer
    maker.close()


def _fields(settings: S3Settings) -> dict[str, str]:
    return {name: getattr(settings, name) for name in settings.__struct_fields__}


def shelf(kind: str, server: Server, patience: RetryPolicy = _PATIENT) -> ObjectStore:
    """Return a client of the server, with a place of its own there."""
    if kind == "swift":
        return SwiftStore(swift_settings(server), patience)
    settings = s3_settings(server)
    make_bucket(settings)
    return S3Store(settings, patience)


@pytest.fixture(params=BACKENDS)
def object_store(request: pytest.FixtureRequest, shared_swift: Server) -> Iterator[ObjectStore]:
    """Give each kind of store."""
    found = shelf(request.param, shared_swift)
    yield found
    found.close()


@pytest.fixture
def site(sqlite_url: str) -> Iterator[Site]:
    """Give a database without object stores."""
    made = Site(sqlite_url, {})
    yield made
    made.backend.close()
