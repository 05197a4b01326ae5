"""What firmware puts into JSON: it is made readable, and cleaned for those who work with it."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferroscope_client.core import json_safety
from tests.support.rows import each

BAD = "\N{REPLACEMENT CHARACTER}"


@each(
    ("raw", "value"),
    [
        (b'"ABC\x00\x00"', "ABC\0\0"),
        (b'"a\x01b\x1fc"', "a\x01b\x1fc"),
        (b'"line\nnext\tcolumn\r"', "line\nnext\tcolumn\r"),
        (b'"Intel\xae"', f"Intel{BAD}"),
        (b'"\xed\xa0\x80"', BAD * 3),
        (rb'"Intel\udcae"', f"Intel{BAD}"),
        (rb'"\ud800\ud83d\ude00\udc00"', f"{BAD}😀{BAD}"),
        (rb'"\\ud800\\\ud800"', f"\\ud800\\{BAD}"),
        (rb'"\ud83d\\ude00"', f"{BAD}\\ude00"),
        (b'{"a":NaN,"b":[-Infinity,Infinity],"NaN":"NaN"}', {"a": "NaN", "b": ["-Infinity", "Infinity"], "NaN": "NaN"}),
        (
            b'{"a": 1e999, "b": -1.5E+400, "c": 1e5, "1e999": "1e999"}',
            {"a": "1e999", "b": "-1.5E+400", "c": 1e5, "1e999": "1e999"},
        ),
        (b"[" + b"9" * 5000 + b",1]", ["9" * 5000, 1]),
        (b"\xef\xbb\xbf[1]\x00\n\x00", [1]),
        (b'["a\\"\nb", "\\\\", "\n"]', ['a"\nb', "\\", "\n"]),
    ],
)
def test_it_can_be_read(raw: bytes, value: Any) -> None:
    with pytest.raises(json_safety.JsonError):
        json_safety.decode(raw)
    assert json_safety.decode(json_safety.readable(raw)) == value


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_valid_json_keeps_its_meaning(document: Any) -> None:
    for raw in (json.dumps(document).encode(), msgspec.json.encode(document)):
        assert json_safety.readable(raw) is raw
        assert json_safety.decode(json_safety.repair_json(raw)) == json_safety.decode(raw) == document


@given(
    st.recursive(
        st.floats() | st.text(st.characters()),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters()), inner),
    )
)
def test_whatever_python_writes_can_be_read(document: Any) -> None:
    """``json.dumps`` writes NaN and unpaired surrogates, and ramdisks use it."""
    json_safety.decode(json_safety.readable(json.dumps(document).encode()))


@each("raw", [b"{", b'{"a": 01}', b'{"a" 1}', b"nonsense", b"", b"\xff\xfe"])
def test_what_is_no_json_stays_none(raw: bytes) -> None:
    with pytest.raises(json_safety.JsonSyntaxError):
        json_safety.readable(raw)


@each("raw", [b'"' + b"\xff" * 20_000 + b'"', b'"' + b"\x01" * 20_000 + b'"'])
def test_a_body_that_is_mostly_odd_is_not_repaired(raw: bytes) -> None:
    with pytest.raises(json_safety.JsonTooLargeError, match="consists mostly"):
        json_safety.readable(raw)


@each(
    ("text", "clean"),
    [
        ("ABC123\0\0", "ABC123"),
        ("  ABC  \0", "ABC"),
        ("\x01ABC", "ABC"),
        ("A\0B", f"A{BAD}B"),
        (f"Intel{BAD} Xeon{BAD}", f"Intel{BAD} Xeon"),
        ("a\tb\n", "a\tb\n"),
        (" as it is ", " as it is "),
        ("\0\0", ""),
    ],
)
def test_padding_is_removed_and_the_rest_replaced(text: str, clean: str) -> None:
    document = {text: [text, {"a": text}], "number": 1}
    assert json_safety.clean_value(document) == {clean: [clean, {"a": clean}], "number": 1}
    assert json_safety.decode_clean(msgspec.json.encode(document)) == json_safety.clean_value(document)
    assert json_safety.decode_clean(json.dumps(document).encode()) == json_safety.clean_value(document)


def test_odd_fields_are_named() -> None:
    document = {"a": {"b": ["x", "y\0"]}, "fine": "tab\t", "k\0": "v", "more": ["\x01"] * 9}
    assert json_safety.odd_fields(document, 3) == ["a.b[1]", "k\\x00", "more[0]"]
    assert json_safety.odd_fields({"fine": "é😀"}, 3) == []


@each(
    ("raw", "why"),
    [
        (b"[" + b"1," * 200_000 + b"1]", "more than 200000 values"),
        (b'{"a":[' + b'"",' * 200_000 + b'""]}', "more than 200000 values"),
        (b"[" + b"{}," * 50_000 + b"{}]", "more than 50000 objects"),
        (b"[" + b"1," * 50_000 + b"NaN]", "more than 35000 values"),
        (b"[" * 26 + b"]" * 26, "nested too deeply"),
        (b"[" * 100_000 + b"]" * 100_000, "nested too deeply|more than 50000 objects"),
    ],
)
def test_what_would_cost_too_much_is_refused(raw: bytes, why: str) -> None:
    with pytest.raises(json_safety.JsonTooLargeError, match=why):
        json_safety.readable(raw)


def test_commas_and_brackets_in_texts_cost_nothing() -> None:
    raw = json.dumps(['[{,\\",' * 100_000]).encode()
    assert json_safety.readable(raw) is raw


@each("number", ["1e308", "-5e-324", "2.2250738585072011e-308", "0.1", "1E5", "1e-400"])
def test_numbers_are_those_of_python(number: str) -> None:
    assert json_safety.decode(number.encode()) == float(number)


@each("number", ["1e309", "-1e999"])
def test_a_number_that_is_out_of_range_is_refused(number: str) -> None:
    with pytest.raises(json_safety.JsonError, match="out of range"):
        json_safety.decode(number.encode())
