"""JSON from other programs: the one place that decodes it. The cost grows with its size only.

A body is bounded in bytes by its reader. That is not enough: 2 MiB of nested lists, of tiny values or of numbers such
as 1e308 cost a decoder seconds, in which no other thread of the process runs. So objects and arrays, values and levels
are counted before decoding, which takes a millisecond for 2 MiB, and numbers are read by Python's own ``float``. Stored
documents are decoded here, too: a release that did not count may have written them.

Ramdisks and BMCs pass on what they read from firmware: padding of NUL, control characters, bytes in another encoding,
half of a surrogate pair, numbers that no reader can hold. One odd value must not cost the rest of the data, so
``repair_json`` rewrites JSON in a form that every reader accepts. ``clean_value`` is for code that uses the values: it
removes control characters from the ends of a text, where they are padding, and replaces them inside.
"""

from __future__ import annotations

import json
import math
import re
import threading
from typing import Any, Final, TypeVar, overload

import msgspec

from ferroscope_client.core.values import one_line

# A 40 KB inventory has about 500; the largest machines have a few thousand.
MAX_CONTAINERS: Final = 50_000
# Hooks repeat parts of the data in their output.
MAX_DERIVED: Final = 4 * MAX_CONTAINERS
MAX_VALUES_PER_CONTAINER: Final = 4
MAX_DEPTH: Final = 25
_TOO_DEEP: Final = f"it is nested too deeply: at most {MAX_DEPTH} levels are allowed"
# A body that is repaired is read three times. The largest machines report 20,000 values.
MAX_REPAIRED_VALUES: Final = 35_000
# Python converts integers of up to 4,300 digits, in quadratic time. No other reader holds such a number.
_MAX_INTEGER_DIGITS: Final = 300

T = TypeVar("T")

_STRUCTURE: Final = b'{}[]",'
_OTHER_BYTES: Final = bytes(sorted(set(range(256)) - set(_STRUCTURE)))
# A repair may more than double a short body.
_SHORT_BYTES: Final = 4096
_CURLY_BRACKETS: Final = bytes.maketrans(b"[]", b"{}")


class JsonError(ValueError):
    """The data cannot be used; the text says why."""


class JsonTooLargeError(JsonError):
    """The data has too many objects, arrays or values, or too many levels, to be decoded."""


class JsonSyntaxError(JsonError):
    """The data is not JSON in UTF-8, or has a number that is out of range."""


class JsonTypeError(JsonError):
    """The JSON does not have the expected type."""


class _Decoders(dict[Any, msgspec.json.Decoder[Any]]):
    """The decoder of each type, built when it is first needed.

    msgspec builds its description of a struct type with the type's first decoder. If two threads do that at once, one
    of them decodes with a partial description, and the process crashes with SIGSEGV (seen with 0.22).
    """

    def __init__(self) -> None:
        super().__init__()
        self._building = threading.Lock()

    def __missing__(self, kind: Any) -> msgspec.json.Decoder[Any]:
        with self._building:
            return self.setdefault(kind, msgspec.json.Decoder(kind, float_hook=_finite_float))


def _finite_float(text: str) -> float:
    """Return the number. msgspec's own conversion takes 12 us for 1e308; this takes 0.7 us for the worst number."""
    number = float(text)
    if math.isinf(number):
        raise ValueError("number out of range")
    return number


_decoders: Final = _Decoders()


@overload
def decode(raw: bytes, *, max_containers: int = MAX_CONTAINERS) -> Any: ...
@overload
def decode(raw: bytes, kind: type[T], *, max_containers: int = MAX_CONTAINERS) -> T: ...
def decode(raw: bytes, kind: Any = Any, *, max_containers: int = MAX_CONTAINERS) -> Any:
    """Return the JSON of another program decoded as ``kind``; raise ``JsonError``."""
    check_size(raw, max_containers)
    return decode_own(raw, kind)


@overload
def decode_own(raw: bytes | str) -> Any: ...
@overload
def decode_own(raw: bytes | str, kind: type[T]) -> T: ...
def decode_own(raw: bytes | str, kind: Any = Any) -> Any:
    """Return JSON that this service has written, decoded as ``kind`` without counting; raise ``JsonError``."""
    try:
        return _decoders[kind].decode(raw)
    except msgspec.ValidationError as exc:
        raise JsonTypeError(str(exc)) from exc
    except (msgspec.DecodeError, UnicodeError) as exc:
        raise JsonSyntaxError(str(exc)) from exc
    except RecursionError:
        raise JsonTooLargeError(_TOO_DEEP) from None


def decode_clean(raw: bytes) -> Any:
    """Return the decoded data of a ramdisk as hooks and rules get it; raise ``JsonError``."""
    document = decode(raw)
    return clean_value(document) if may_be_odd(raw) else document


def ready(*kinds: Any) -> None:
    """Build the decoders of these types, and with them what ``msgspec.convert`` needs, before threads start."""
    for kind in kinds:
        _decoders[kind]


def check_size(raw: bytes, max_containers: int = MAX_CONTAINERS) -> None:
    """Raise ``JsonTooLargeError`` if there are too many objects and arrays, or values, to be decoded."""
    if len(raw) <= max_containers:
        return
    if containers_exceed(raw, max_containers):
        raise JsonTooLargeError(f"it has more than {max_containers} objects and arrays")
    if values_exceed(raw, max_values := MAX_VALUES_PER_CONTAINER * max_containers):
        raise JsonTooLargeError(f"it has more than {max_values} values")


def check_depth(raw: bytes) -> None:
    """Raise ``JsonTooLargeError`` if valid JSON is nested deeper than a request's body or a BMC's answer may be."""
    if depth_exceeds(raw, MAX_DEPTH):
        raise JsonTooLargeError(_TOO_DEEP)


def containers_exceed(raw: bytes, limit: int) -> bool:
    """Whether there are more than ``limit`` objects and arrays; brackets inside strings do not count."""
    if raw.count(b"{") + raw.count(b"[") <= limit:
        return False
    return _structure(raw).count(b"{") > limit


def values_exceed(raw: bytes, limit: int) -> bool:
    """Whether there are more than ``limit`` values, by their commas; commas inside strings do not count."""
    return raw.count(b",") >= limit and _structure(raw).count(b",") >= limit


def depth_exceeds(raw: bytes, limit: int) -> bool:
    """Whether valid JSON is nested deeper than ``limit`` objects and arrays, without decoding it."""
    if len(raw) <= 2 * limit:
        return False
    brackets = _structure(raw).replace(b",", b"")
    for _ in range(limit):
        brackets = brackets.replace(b"{}", b"")  # removes the whole innermost level
        if not brackets:
            return False
    return bool(brackets)


def _structure(raw: bytes) -> bytes:
    """Return the brackets, all as curly brackets, and the commas outside of strings."""
    if b"\\" in raw:
        raw = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
    # Only brackets, commas and quotes are left; a quote still toggles "inside a string".
    structure = raw.translate(_CURLY_BRACKETS, _OTHER_BYTES).replace(b'""', b"")
    return b"".join(structure.split(b'"')[::2]) if b'"' in structure else structure


_BOM: Final = b"\xef\xbb\xbf"
_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"
# Half of a surrogate pair: decoding has made a whole pair one character.
_HALF_PAIR: Final = re.compile("[\ud800-\udfff]")


def readable(raw: bytes) -> bytes:
    """Return ``raw``, or ``repair_json(raw)`` if ``decode`` cannot read it; raise ``JsonError``."""
    try:
        decode(raw)
    except JsonTooLargeError:
        raise
    except JsonError:
        raw = repair_json(raw)
    check_depth(raw)
    return raw


def repair_json(raw: bytes) -> bytes:
    """Return the JSON rewritten in UTF-8, so that no string or number keeps a reader from the rest.

    Bytes that are not UTF-8 and unpaired surrogates become U+FFFD; NaN, the infinities and numbers out of range become
    strings. Raise ``JsonError`` if it still is not JSON, is too large, or consists mostly of odd values.
    """
    raw = raw.removeprefix(_BOM).rstrip(b"\0 \t\r\n")
    if values_exceed(raw, MAX_REPAIRED_VALUES):
        raise JsonTooLargeError(f"it is not JSON in UTF-8, and has more than {MAX_REPAIRED_VALUES} values")
    try:
        document = json.loads(
            raw.decode(errors="replace"),
            strict=False,  # control characters in strings
            parse_constant=str,
            parse_float=_float_or_text,
            parse_int=_integer_or_text,
        )
    except ValueError as exc:
        raise JsonSyntaxError(str(exc)) from exc
    except RecursionError:
        raise JsonTooLargeError(_TOO_DEEP) from None
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    try:
        written = text.encode()
    except UnicodeEncodeError:
        written = _HALF_PAIR.sub(_REPLACEMENT, text).encode()
    if len(written) > 2 * len(raw) + _SHORT_BYTES:
        raise JsonTooLargeError("it consists mostly of control characters, or of bytes that are not UTF-8")
    return written


def _float_or_text(text: str) -> float | str:
    return text if math.isinf(number := float(text)) else number


def _integer_or_text(text: str) -> int | str:
    return int(text) if len(text) <= _MAX_INTEGER_DIGITS else text


# Values that are readable but odd are stored unchanged, and cleaned for code that uses them.

_ODD: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\N{REPLACEMENT CHARACTER}]")
_PADDING: Final = "".join(map(chr, range(0x21))) + "\x7f" + _REPLACEMENT
_ODD_ESCAPES: Final = (rb"\b", rb"\f", rb"\ufffd", rb"\uFFFD")
_ODD_ESCAPE: Final = re.compile(rb"\\u00(?:[01][0-9a-fA-F]|7[fF])")
_MAX_PATH: Final = 120


def may_be_odd(raw: bytes) -> bool:
    """Whether ``clean_value`` may change something of this JSON."""
    # A search for one byte takes a hundredth of the time of a search for two, and most data has no escapes.
    if b"\x7f" in raw or (not raw.isascii() and _REPLACEMENT.encode() in raw):
        return True
    if b"\\" not in raw:
        return False
    return any(escape in raw for escape in _ODD_ESCAPES) or (b"\\u00" in raw and _ODD_ESCAPE.search(raw) is not None)


def clean_value(value: Any) -> Any:
    """Return decoded JSON with all odd texts cleaned, names too; the same object if there are none."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, list):
        return [clean_value(item) for item in value]
    return {clean_text(key): clean_value(item) for key, item in value.items()} if isinstance(value, dict) else value


def clean_text(text: str) -> str:
    """Return ``text`` without control characters: removed from its ends, replaced inside."""
    if _ODD.search(text) is None:
        return text
    return _ODD.sub(_REPLACEMENT, text.strip(_PADDING))


def odd_fields(document: Any, limit: int) -> list[str]:
    """Return the paths of the first ``limit`` odd texts, for people."""
    paths: list[str] = []
    _find_odd(document, [], paths, limit)
    return paths[:limit]


def _find_odd(value: Any, steps: list[str | int], paths: list[str], limit: int) -> None:
    """Add the paths of odd texts only: with one long name, the paths of all values would take gigabytes."""
    if isinstance(value, str):
        if _ODD.search(value) is not None:
            paths.append(_path(steps))
        return
    if not isinstance(value, dict | list):
        return
    for step, item in value.items() if isinstance(value, dict) else enumerate(value):
        if len(paths) >= limit:
            return
        steps.append(step)
        if isinstance(step, str) and _ODD.search(step) is not None:
            paths.append(_path(steps))
        if isinstance(item, str | dict | list):
            _find_odd(item, steps, paths, limit)
        steps.pop()


def _path(steps: list[str | int]) -> str:
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)
    return one_line(text.removeprefix("."), _MAX_PATH)
