"""HTTP answers are read whole, however they are cut up, and bounded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferroscope_sim.ramdisk import MAX_BODY_BYTES, MAX_HEAD_BYTES, AnswerReader, MalformedError, RamdiskAnswer
from tests.support.rows import each

WITH_LENGTH = b"HTTP/1.1 202 Accepted\r\nContent-Type: application/json\r\nCONTENT-LENGTH:  2 \r\n\r\n{}"
CHUNKED = (
    b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4;ext="x"\r\n{"a"\r\n3\r\n:1}\r\n0\r\nTrailer: yes\r\n\r\n'
)
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + WITH_LENGTH
EMPTY = b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n"
SERVER_ERROR = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"

SWITCHING = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"

CASES = {
    WITH_LENGTH: RamdiskAnswer(202, b"{}"),
    CHUNKED: RamdiskAnswer(200, b'{"a":1}'),
    INTERIM: RamdiskAnswer(202, b"{}"),
    EMPTY: RamdiskAnswer(204, b""),
    SERVER_ERROR: RamdiskAnswer(503, b""),
}


@given(st.sampled_from(sorted(CASES)), st.data())
def test_an_answer_is_read_whole_however_it_is_cut_up(text: bytes, data: st.DataObject) -> None:
    reader = AnswerReader()
    at = 0
    answer = None
    while at < len(text):
        assert answer is None
        size = data.draw(st.integers(1, len(text) - at))
        answer = reader.feed(text[at : at + size])
        at += size
    assert answer == CASES[text]
    assert not reader.more


def test_a_body_without_length_ends_with_the_connection() -> None:
    reader = AnswerReader()
    assert reader.feed(b"HTTP/1.0 200 OK\r\n\r\n{") is None
    assert reader.feed(b"}") is None
    assert reader.end() == RamdiskAnswer(200, b"{}")


@each("text", [WITH_LENGTH, CHUNKED])
def test_an_answer_that_ends_too_early_is_none(text: bytes) -> None:
    for size in range(len(text)):
        reader = AnswerReader()
        assert reader.feed(text[:size]) is None
        assert reader.end() is None


@each("text", [WITH_LENGTH, SERVER_ERROR, EMPTY])
@each("after", [b"HTTP/1.1 400", CHUNKED, b"SSH-2.0", SWITCHING])
def test_what_came_after_the_answer_is_noticed_and_no_part_of_it(text: bytes, after: bytes) -> None:
    reader = AnswerReader()
    assert reader.feed(text + after) == CASES[text]
    assert reader.more


@each(
    ("text", "keep_alive"),
    [(WITH_LENGTH, True), (SERVER_ERROR, False), (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", False)],
)
def test_it_says_whether_the_connection_may_be_used_again(text: bytes, *, keep_alive: bool) -> None:
    reader = AnswerReader()
    reader.feed(text)
    assert reader.keep_alive is keep_alive


@each(
    "text",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        SWITCHING,
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-4\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (MAX_BODY_BYTES + 1),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n" % (MAX_BODY_BYTES + 1)
        + b"x" * (MAX_BODY_BYTES + 1),
        b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * (MAX_BODY_BYTES + 1),
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * MAX_HEAD_BYTES,
    ],
)
def test_what_is_no_answer_or_too_long_is_refused(text: bytes) -> None:
    with pytest.raises(MalformedError):
        AnswerReader().feed(text)


@given(st.binary(max_size=200))
def test_no_bytes_break_the_reader(text: bytes) -> None:
    reader = AnswerReader()
    try:
        reader.feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + text)
    except MalformedError:
        return
    reader.end()
