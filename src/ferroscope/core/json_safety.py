"""JSON of strangers: bounded before it is decoded, and made readable where it is odd.

Each object and array costs the decoder and the garbage collector far more than its two bytes: 16 MiB of nested lists
block a process for seconds. Counting takes 1 ms for 2 MiB and some tens of microseconds for a typical inventory. Stored
data may have been written by a release that did not count, so its readers count too.

Ramdisks pass on what they read from firmware and tools: padding of NUL, control characters, bytes in another encoding,
half of a surrogate pair, numbers that no reader can hold. What one odd value breaks must not cost the rest of the data:
``repaired`` makes JSON of it that every reader accepts, and changes nothing else. ``cleaned`` is for those who work
with the values: control characters, which JSON may hold but a database's text and a terminal may not, are removed from
the ends of a text, where they are padding, and replaced in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from ferroscope.core.values import one_line

# A 40 KB inventory has about 500; the largest machines have a few thousand.
MAX_CONTAINERS: Final = 50_000
# How deeply the body of a request may be nested.
MAX_DEPTH: Final = 25
# Hooks repeat parts of the data in their output.
MAX_DERIVED: Final = 4 * MAX_CONTAINERS

_STRUCTURE: Final = b'{}[]"'
_OTHER_BYTES: Final = bytes(sorted(set(range(256)) - set(_STRUCTURE)))
_ESCAPE: Final = re.compile(rb"\\.", re.DOTALL)
_MANY_ESCAPES: Final = 4096
_ONE_BRACKET: Final = bytes.maketrans(b"[]", b"{}")


class TooManyContainersError(Exception):
    """The data has too many objects and arrays to be decoded."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"more than {limit} objects and arrays")


def decode(raw: bytes, limit: int = MAX_CONTAINERS) -> Any:
    """Return the decoded JSON; ``TooManyContainersError``, msgspec's errors."""
    if containers_exceed(raw, limit):
        raise TooManyContainersError(limit)
    return msgspec.json.decode(raw)


def decode_clean(raw: bytes) -> Any:
    """Return the decoded data of a ramdisk as hooks and rules get it; ``TooManyContainersError``, msgspec's errors."""
    document = decode(raw)
    return cleaned(document) if may_be_odd(raw) else document


def containers_exceed(raw: bytes, limit: int = MAX_CONTAINERS) -> bool:
    """Whether there are more than ``limit`` objects and arrays; brackets inside strings do not count."""
    if len(raw) <= limit or raw.count(b"{") + raw.count(b"[") <= limit:
        return False
    return _brackets(raw).count(b"{") > limit


def depth_exceeds(raw: bytes, limit: int) -> bool:
    """Whether valid JSON is nested deeper than ``limit`` objects and arrays, without decoding it."""
    if len(raw) <= 2 * limit:
        return False
    brackets = _brackets(raw)
    for _ in range(limit):
        brackets = brackets.replace(b"{}", b"")  # removes the whole innermost level
        if not brackets:
            return False
    return bool(brackets)


def _brackets(raw: bytes) -> bytes:
    """Return the brackets outside of strings, all as curly brackets."""
    if b"\\" in raw:
        raw = _without_escapes(raw)
    # Only brackets and quotes are left; a quote still toggles "inside a string".
    brackets = raw.translate(_ONE_BRACKET, _OTHER_BYTES).replace(b'""', b"")
    return b"".join(brackets.split(b'"')[::2]) if b'"' in brackets else brackets


def _without_escapes(raw: bytes) -> bytes:
    if raw.count(b"\\") < _MANY_ESCAPES:
        return _ESCAPE.sub(b"", raw)
    return raw.replace(b"\\\\", b"").replace(b'\\"', b"")  # slower for few escapes, but linear


_BOM: Final = b"\xef\xbb\xbf"
_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"
_REPLACED: Final = _REPLACEMENT.encode()
# A body that needs more repairs than this is not JSON. They make it at most six times as long.
MAX_REPAIRS: Final = 10_000
# Telling strings and numbers from the rest costs a call for each: more of them are not looked at.
_MAX_TOKENS: Final = 400_000
_MAX_STRUCTURE: Final = 2 * 2**20

_CONTROL_BYTES: Final = bytes({*range(0x20)} - {*b"\t\n\r"})
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")
# An odd number of backslashes begins an escape. A high surrogate before a low one is one character.
_SURROGATE: Final = re.compile(
    rb"(?<!\\)((?:\\\\)*+)(?:(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)
_STRING_OR_NUMBER: Final = re.compile(
    rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
    rb"|-?\b(?:NaN|Infinity)\b"
    rb"|(?<![0-9.eE+-])-?(?:[0-9]++(?:\.[0-9]++)?[eE][+-]?[0-9]++|[0-9]{300}[0-9]*+(?:\.[0-9]++)?)",
    re.DOTALL,
)
_BREAKS: Final = re.compile(rb"[\t\n\r]")
_ESCAPES: Final = {b"\t": rb"\t", b"\n": rb"\n", b"\r": rb"\r"}


class TooOddError(Exception):
    """More than ``MAX_REPAIRS`` repairs would be needed."""


def readable(raw: bytes) -> bytes:
    """Return ``raw``, ``repaired`` only if that is needed, which takes far longer than finding it out; ``TooOddError``.

    What cannot be repaired is returned as well, for its reader to stumble over.
    """
    try:
        msgspec.json.decode(raw)
    except (ValueError, RecursionError):  # msgspec's errors, and that of UTF-8
        return repaired(raw)
    return raw


def repaired(raw: bytes) -> bytes:
    """Return ``raw`` as UTF-8 in which no string or number keeps a reader of JSON from the rest; ``TooOddError``.

    Bytes that are not UTF-8 and unpaired surrogates become U+FFFD, control characters are escaped, NaN, the infinities
    and numbers out of range become strings.
    """
    raw = raw.removeprefix(_BOM).rstrip(b"\0 \t\r\n")
    try:
        raw.decode()
    except UnicodeDecodeError:
        raw = _limited(raw, raw.decode(errors="replace").encode(), _REPLACED)
    if escapes := raw.count(b"\\ud") + raw.count(b"\\uD"):
        if escapes > _MAX_TOKENS // 4:
            raise TooOddError
        raw = _SURROGATE.sub(_paired, raw)
    if len(raw) - len(raw.translate(None, _CONTROL_BYTES)) > MAX_REPAIRS:
        raise TooOddError
    raw = _CONTROL.sub(lambda found: b"\\u%04x" % found[0][0], raw)
    return raw if _is_large(raw) else _STRING_OR_NUMBER.sub(_readable, raw, count=_MAX_TOKENS)


def _is_large(raw: bytes) -> bool:
    """Whether there are too many strings, or too much beside them, to look at each."""
    if raw.count(b'"') > 2 * _MAX_TOKENS:
        return True
    return sum(map(len, raw.replace(rb"\"", b"").split(b'"')[::2])) > _MAX_STRUCTURE


def _limited(before: bytes, after: bytes, what: bytes) -> bytes:
    if after.count(what) - before.count(what) > MAX_REPAIRS:
        raise TooOddError
    return after


def _paired(found: re.Match[bytes]) -> bytes:
    return found[0] if found[2] else found[1] + _REPLACED


def _readable(found: re.Match[bytes]) -> bytes:
    token = found[0]
    if token.startswith(b'"'):
        return _BREAKS.sub(lambda one: _ESCAPES[one[0]], token)
    try:
        msgspec.json.decode(token)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return b'"%s"' % token
    return token


# Values that are readable, but odd: they are kept in what is stored, and cleaned for whoever works with them.

_ODD: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\N{REPLACEMENT CHARACTER}]")
_PADDING: Final = "".join(map(chr, range(0x21))) + "\x7f" + _REPLACEMENT
_ODD_ESCAPES: Final = (rb"\b", rb"\f", rb"\ufffd", rb"\uFFFD")
_ODD_ESCAPE: Final = re.compile(rb"\\u00(?:[01][0-9a-fA-F]|7[fF])")
_MAX_PATH: Final = 120


def may_be_odd(raw: bytes) -> bool:
    """Whether ``cleaned`` may change something of this JSON."""
    # Looking for one byte takes a hundredth of the time that two take, and most data has no escapes.
    if b"\x7f" in raw or (not raw.isascii() and _REPLACED in raw):
        return True
    if b"\\" not in raw:
        return False
    return any(one in raw for one in _ODD_ESCAPES) or (b"\\u00" in raw and _ODD_ESCAPE.search(raw) is not None)


def cleaned(value: Any) -> Any:
    """Return decoded JSON with all odd texts cleaned, names too; the same object if there are none."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, list):
        return [cleaned(item) for item in value]
    return {clean_text(key): cleaned(item) for key, item in value.items()} if isinstance(value, dict) else value


def clean_text(text: str) -> str:
    """Return ``text`` without control characters: removed from its ends, replaced inside."""
    if _ODD.search(text) is None:
        return text
    return _ODD.sub(_REPLACEMENT, text.strip(_PADDING))


def odd_fields(document: Any, limit: int) -> list[str]:
    """Return the paths of the first ``limit`` odd texts, for people."""
    found: list[str] = []
    for path, text in _texts(document, ""):
        if _ODD.search(text) is not None:
            found.append(one_line(path, _MAX_PATH))
            if len(found) == limit:
                break
    return found


def _texts(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _texts(item, f"{path}[{index}]")
    elif isinstance(value, dict):
        for key, item in value.items():
            inner = f"{path}.{key}" if path else key
            yield inner, key
            yield from _texts(item, inner)


# Prepares types for decoding before threads start.
#
# msgspec builds its description of a struct type at the first decoding. If two threads do that at once, one of them
# decodes with a partial description and the process crashes with SIGSEGV (seen with 0.22). A module that decodes
# structs in threads calls ``ready`` when it is imported, or keeps its own ``Decoder``.


def ready(*types: Any) -> None:
    """Have msgspec prepare these types and all types they refer to."""
    for one in types:
        msgspec.json.Decoder(one)
