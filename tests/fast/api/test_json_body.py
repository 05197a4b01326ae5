"""Checking JSON as bytes: nesting, NULs, surrogates."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferroscope.api.errors import BadRequestError
from ferroscope.api.http import decoding
from ferroscope_client.core import json_safety
from tests.support.rows import each

TEXTS = st.text(alphabet='[]{}"\\,:a\n', max_size=8)
VALUES = st.recursive(
    st.none() | st.integers(-9, 9) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=40,
)


def depth(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth, value.values()), default=0)
    return 1 + max(map(depth, value), default=0) if isinstance(value, list) else 0


@given(VALUES)
def test_nesting_is_counted_exactly_whatever_strings_hold(value: Any) -> None:
    raw = json.dumps(value).encode()
    actual = depth(value)
    assert not json_safety.depth_exceeds(raw, actual)
    if actual:
        assert json_safety.depth_exceeds(raw + b"[]" * actual, actual - 1)


@given(VALUES, st.integers(1, 8))
def test_a_limit_is_exceeded_exactly_above_it(value: Any, limit: int) -> None:
    padded = {"padding": [[] for _ in range(limit)], "value": value}
    assert json_safety.depth_exceeds(json.dumps(padded).encode(), limit) is (depth(padded) > limit)


@each("raw", [rb'"\u0000"', rb'{"a\u0000": 1}', rb'"\\\u0000"'])
def test_nul_is_refused_wherever_it_is(raw: bytes) -> None:
    with pytest.raises(BadRequestError, match="NUL"):
        decoding.decode(raw, Any)


def test_an_escaped_backslash_before_u0000_is_no_nul() -> None:
    assert decoding.decode(rb'"\\u0000"', Any) == "\\u0000"


@each("raw", [b"", b"{", b"01", b'"\xff"', rb'"\ud800"', rb'"\udc00"', b"nan", b"1e999", b"[1,]"])
def test_what_is_no_json_is_refused(raw: bytes) -> None:
    with pytest.raises(BadRequestError):
        decoding.decode(raw, Any)


def test_refusal_names_the_place() -> None:
    with pytest.raises(BadRequestError, match=r"`\$\.a\[1\]`|\$\[\.\.\.\]\[1\]"):
        decoding.decode(b'{"a": [1, "x"]}', dict[str, list[int]])


def test_nesting_beyond_the_decoders_own_limit_is_refused_the_same() -> None:
    with pytest.raises(BadRequestError, match="nested"):
        decoding.decode(b"[" * 20_000 + b"]" * 20_000, Any)


def containers(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + sum(map(containers, value.values()))
    return 1 + sum(map(containers, value)) if isinstance(value, list) else 0


@given(VALUES, st.integers(0, 4))
def test_containers_are_counted_exactly_whatever_strings_hold(value: Any, less: int) -> None:
    count = containers(value)
    raw = json.dumps(value).encode()
    assert not json_safety.containers_exceed(raw, count)
    assert json_safety.containers_exceed(raw, count - 1 - less)


@pytest.mark.parametrize("unit", ["[],", "{},", '{"a":{}},', "[" * 22 + "]" * 22 + ","])
def test_a_body_of_containers_is_refused_before_it_is_decoded(unit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = f'{{"x":[{unit * (2_000_000 // len(unit))}0]}}'.encode()
    monkeypatch.setattr(json_safety, "decode_own", None)
    with pytest.raises(BadRequestError, match="50000"):
        decoding.decode(raw, dict[str, Any])
