"""``ports.objects.ObjectStore`` by each API, against a real server; and what happens without one."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Iterator

import msgspec
import pytest

from ferroscope.adapters.objects.s3 import S3Store
from ferroscope.adapters.objects.swift import SwiftStore
from ferroscope.config.settings import S3Settings
from ferroscope.ports.objects import ObjectMissingError, ObjectStore, ObjectStoreError
from tests.integration.objects.conftest import s3_settings, swift_settings
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
    with pytest.raises(ObjectMissingError, match="is not in the"):
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
        S3Store(s3_settings(shared_swift, secret_key=secret), timeout=20.0, retries=0),
        SwiftStore(swift_settings(shared_swift, password=secret), timeout=20.0, retries=0),
    )
    for store in stores:
        with pytest.raises(ObjectStoreError) as caught:
            store.put("k", b"1")
        store.close()
        assert "answered 40" in str(caught.value)
        assert secret not in str(caught.value) + caplog.text
        assert "testing" not in str(caught.value) + caplog.text


def test_a_token_that_is_refused_is_fetched_anew(shared_swift: Server) -> None:
    store = SwiftStore(swift_settings(shared_swift), timeout=20.0, retries=3)
    store.put("k", b"1")
    access = store._access
    assert access is not None
    store._access = msgspec.structs.replace(access, token="AUTH_tk-expired")
    assert store.get("k") == b"1"
    store.close()


@contextlib.contextmanager
def a_server_that(answers: bytes, *, pause: float = 0.0) -> Iterator[int]:
    """Give the port of a server that sends these bytes to everybody, one by one with pauses where asked to."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.1)
        over = threading.Event()

        def serve() -> None:
            while not over.is_set():
                with contextlib.suppress(OSError):
                    connection, _ = listener.accept()
                    with connection:
                        connection.recv(65536)
                        for byte in answers:
                            connection.sendall(bytes([byte]))
                            if pause and over.wait(pause):
                                return
                        if not answers:
                            over.wait(5.0)

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        over.set()
        thread.join()


def client(port: int, *, timeout: float = 0.3, retries: int = 0) -> S3Store:
    return S3Store(S3Settings(endpoint=f"http://127.0.0.1:{port}"), timeout=timeout, retries=retries)


def test_a_server_that_says_nothing_is_not_waited_for() -> None:
    with a_server_that(b"") as port:
        began = time.monotonic()
        with pytest.raises(ObjectStoreError, match="does not answer"):
            client(port).get("k")
        assert time.monotonic() - began < 3.0


def test_a_server_that_says_a_byte_now_and_then_is_not_waited_for() -> None:
    with a_server_that(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + b"x" * 1000, pause=0.01) as port:
        began = time.monotonic()
        with pytest.raises(ObjectStoreError, match="did not send its answer within"):
            client(port, timeout=1.0).get("k")
        assert time.monotonic() - began < 5.0


def test_busy_is_tried_again_but_not_for_ever() -> None:
    busy = b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    with a_server_that(busy) as port, pytest.raises(ObjectStoreError, match="answered 503"):
        client(port, timeout=5.0, retries=1).put("k", b"1")


def test_nobody_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(ObjectStoreError, match="does not answer"):
        client(port).put("k", b"1")
