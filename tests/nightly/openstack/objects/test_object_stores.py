"""``contracts.remote.ObjectStore`` by each API, against a real server."""

from __future__ import annotations

import logging
import os

import msgspec
import pytest

from ferroscope.contracts.remote import ObjectMissingError, ObjectStore, ObjectStoreError
from ferroscope.contrib.openstack.swift import SwiftStore
from ferroscope.storage.object_http import RetryPolicy
from ferroscope.storage.s3 import S3Store
from tests.nightly.openstack.objects.conftest import s3_settings, swift_settings
from tests.support.servers import Server


@pytest.mark.parametrize("size", [0, 1, 70_000, 5_000_000])
def test_what_was_put_is_what_one_gets(object_store: ObjectStore, size: int) -> None:
    content = os.urandom(size)
    object_store.put("node/inspection/inventory-1.json.gz", content)
    assert object_store.get("node/inspection/inventory-1.json.gz") == content


def test_a_put_may_be_repeated(object_store: ObjectStore) -> None:
    object_store.put("k", b"content")
    object_store.put("k", b"content")
    assert object_store.get("k") == b"content"


def test_keys_are_taken_as_they_are(object_store: ObjectStore) -> None:
    key = "ä b+c/%2F~d&e=f.json"
    object_store.put(key, b"1")
    assert object_store.get(key) == b"1"
    object_store.delete(key)
    with pytest.raises(ObjectMissingError, match="is missing in"):
        object_store.get(key)


def test_what_is_deleted_is_gone_and_may_be_deleted_again(object_store: ObjectStore) -> None:
    object_store.put("k", b"content")
    object_store.delete("k")
    object_store.delete("k")
    with pytest.raises(ObjectMissingError):
        object_store.get("k")


def test_wrong_credentials_are_refused_and_never_shown(shared_swift: Server, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    secret = "not-the-secret"
    stores = (
        S3Store(s3_settings(shared_swift, secret_key=secret), RetryPolicy(timeout=20.0, retries=0)),
        SwiftStore(swift_settings(shared_swift, password=secret), RetryPolicy(timeout=20.0, retries=0)),
    )
    for store in stores:
        with pytest.raises(ObjectStoreError) as caught:
            store.put("k", b"1")
        store.close()
        assert "HTTP 40" in str(caught.value)
        assert secret not in str(caught.value) + caplog.text
        assert "testing" not in str(caught.value) + caplog.text


def test_a_token_that_is_refused_is_fetched_anew(shared_swift: Server) -> None:
    store = SwiftStore(swift_settings(shared_swift), RetryPolicy(timeout=20.0, retries=3))
    store.put("k", b"1")
    access = store._access
    assert access is not None
    store._access = msgspec.structs.replace(access, token="AUTH_tk-expired")
    assert store.get("k") == b"1"
    store.close()
