"""JSON of ramdisks, made readable: what one odd value of a firmware breaks must not cost the rest of the data.

Ramdisks pass on what they read from firmware and tools: padding of NUL, control characters, bytes in another encoding,
half of a surrogate pair, numbers that no reader can hold. ``repaired`` makes JSON of it that every reader accepts, and
changes nothing else. ``cleaned`` is for those who work with the values: control characters, which JSON may hold but a
database's text and a terminal may not, are removed from the ends of a text, where they are padding, and replaced in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from ferroscope.core.values import one_line

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


def decode_clean(raw: bytes) -> Any:
    """Return the decoded data of a ramdisk as hooks and rules get it; msgspec's errors."""
    document = msgspec.json.decode(raw)
    return cleaned(document) if may_be_odd(raw) else document


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
