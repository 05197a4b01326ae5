"""What a client sends costs memory in proportion to its bytes, however it is cut into pieces."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import httptools
import pytest

from ferroscope.http_server.incoming import (
    BEGINNING_BYTES,
    HEAD_BYTES,
    MAX_FIELDS,
    MAX_SMALL_CHUNKS,
    MIN_CHUNK_BYTES,
    ConnectionPhase,
    Incoming,
)
from ferroscope.http_server.limits import ServerLimits
from tests.support.rows import each

_HEAD = b"POST /v1/continue HTTP/1.1\r\nHost: here\r\n"
_SIZE = 60_000


def incoming(limits: ServerLimits = ServerLimits()) -> Incoming:  # noqa: B008  # immutable
    def entered(_phase: ConnectionPhase, _seconds: float) -> None:
        pass

    return Incoming(limits, decides=False, entered=entered, go_on=lambda: None)


def fields(count: int) -> bytes:
    return b"".join(b"a%d: b\r\n" % number for number in range(count))


@pytest.fixture(name="memory")
def _memory() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.parametrize("piece", [16, 100])
@pytest.mark.usefixtures("memory")
def test_a_body_in_small_chunks_takes_no_more_than_its_size(piece: int) -> None:
    found = incoming()
    found.feed(_HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
    chunks = (b"%x\r\n" % piece + b"x" * piece + b"\r\n") * (_SIZE // piece)
    before, _ = tracemalloc.get_traced_memory()
    found.feed(chunks)
    after, _ = tracemalloc.get_traced_memory()
    assert found.request.size == _SIZE
    assert after - before < 2 * _SIZE
    found.feed(b"0\r\n\r\n")
    assert bytes(found.complete[0].body) == b"x" * _SIZE


@pytest.mark.usefixtures("memory")
def test_a_body_in_small_packets_takes_no_more_than_its_size() -> None:
    found = incoming()
    found.feed(_HEAD + b"Content-Length: %d\r\n\r\n" % _SIZE)
    before, _ = tracemalloc.get_traced_memory()
    for _ in range(_SIZE // 4):
        found.feed(b"abcd")
    after, _ = tracemalloc.get_traced_memory()
    assert bytes(found.complete[0].body) == b"abcd" * (_SIZE // 4)
    assert after - before < 2 * _SIZE


@each("piece", [1, MIN_CHUNK_BYTES // 2])
def test_a_body_in_more_chunks_than_its_size_needs_is_refused_early(piece: int) -> None:
    body = incoming()
    body.feed(_HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
    with pytest.raises(httptools.HttpParserError):
        body.feed((b"%x\r\n" % piece + b"x" * piece + b"\r\n") * MAX_SMALL_CHUNKS * 3)
    assert body.status == 400
    assert body.request.size < 2 * piece * MAX_SMALL_CHUNKS + piece


def test_a_body_of_the_largest_size_may_come_in_chunks_of_any_size_that_is_common() -> None:
    body = incoming()
    body.feed(_HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
    chunk = b"%x\r\n" % MIN_CHUNK_BYTES + b"x" * MIN_CHUNK_BYTES + b"\r\n"
    body.feed(chunk * (ServerLimits().body_size // MIN_CHUNK_BYTES) + b"0\r\n\r\n")
    assert len(body.complete[0].body) == ServerLimits().body_size


@each("step", [1, 2, 7, 1000])
def test_requests_in_a_row_are_told_apart_in_pieces_of_any_size(step: int) -> None:
    requests = incoming()
    post = b"POST /b HTTP/1.1\r\nHost: here\r\nContent-Length: 11\r\n\r\nGET /x\r\n\r\nz"
    sent = (
        b"\r\nGET /a HTTP/1.0\r\n" + b"Connection: keep-alive\r\n\r\n" + post + b"GET /c HTTP/1.1\r\nHost: here\r\n\r\n"
    )
    for start in range(0, len(sent), step):
        requests.feed(sent[start : start + step])
    assert [(request.target, bytes(request.body)) for request in requests.complete] == [
        (b"/a", b""), (b"/b", b"GET /x\r\n\r\nz"), (b"/c", b""),
    ]  # fmt: skip


@each("step", [1, 2, 7, 1000])
def test_the_first_line_of_each_request_in_a_row_is_checked(step: int) -> None:
    chunks = _HEAD + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    for first in (b"GET / HTTP/1.1\r\nHost: here\r\n\r\n", _HEAD + b"Content-Length: 3\r\n\r\nabc", chunks):
        sent = first + b"GET /  HTTP/1.1\r\nHost: here\r\n\r\n"
        requests = incoming()
        pieces = [sent[start : start + step] for start in range(0, len(sent), step)]
        with pytest.raises(httptools.HttpParserError):
            list(map(requests.feed, pieces))
        assert len(requests.complete) == 1


def test_of_an_oversized_body_in_chunks_the_beginning_is_kept() -> None:
    found = incoming(ServerLimits(body_size=2 * BEGINNING_BYTES))
    found.feed(
        _HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + (b"40\r\n" + b"x" * 64 + b"\r\n") * (BEGINNING_BYTES // 16)
    )
    assert found.request.refused == 413
    assert found.request.size == 4 * BEGINNING_BYTES
    assert bytes(found.request.body) == b"x" * BEGINNING_BYTES


def test_a_header_has_so_many_fields_and_no_more() -> None:
    found = incoming()
    found.feed(_HEAD + fields(MAX_FIELDS - 1) + b"\r\n")
    assert len(found.complete[0].headers) == MAX_FIELDS
    found = incoming()
    with pytest.raises(httptools.HttpParserError):
        found.feed(_HEAD + fields(MAX_FIELDS) + b"\r\n")
    assert found.status == 431
    assert not found.complete


@each("head", [b"Cookie: " + b"x" * HEAD_BYTES, b"", fields(100)])
def test_a_large_header_is_refused_also_if_all_of_it_comes_at_once(head: bytes) -> None:
    found = incoming()
    target = b"/" + b"x" * (0 if len(head) > HEAD_BYTES else HEAD_BYTES - len(head))
    with pytest.raises(httptools.HttpParserError):
        found.feed(b"GET " + target + b" HTTP/1.1\r\nHost: here\r\n" + head.rstrip(b"\r\n") + b"\r\n\r\n")
    assert found.status == 431


def test_a_large_body_that_comes_with_its_header_is_no_large_header() -> None:
    found = incoming()
    found.feed(_HEAD + b"Content-Length: 200000\r\n\r\n" + b"x" * 200_000)
    assert len(found.complete[0].body) == 200_000
