"""Single values: spellings that are understood, and what is refused."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ferroscope.api.baremetal.node_filters import NodeListQuery
from ferroscope.api.errors import BadRequestError, MissingError
from ferroscope.api.http import decoding
from ferroscope_client.core import values
from tests.support.rows import each


@given(st.text())
@example("0\x1f")  # white space to a pattern, not to int()
def test_any_text_is_understood_or_refused(text: str) -> None:
    for parse in (
        lambda: decoding.boolean("f", text),
        lambda: decoding.integer("f", text),
        lambda: decoding.uuid("f", text),
        lambda: decoding.name("f", text),
        lambda: decoding.mac("f", text),
        lambda: decoding.ident("node", text),
        lambda: decoding.group("conductor_group", text),
    ):
        with contextlib.suppress(BadRequestError, MissingError):
            parse()


@given(st.dictionaries(st.text(max_size=8) | st.sampled_from(NodeListQuery.__struct_fields__), st.text()))
def test_any_query_is_understood_or_refused(params: dict[str, str]) -> None:
    with contextlib.suppress(BadRequestError):
        assert isinstance(decoding.decode_query(params, NodeListQuery), NodeListQuery)


@each("text", ["", "-", "1-", "--1", "1.5", "٣", "²", "9" * 19, "0x1", "1_000"])
def test_what_is_no_integer(text: str) -> None:
    with pytest.raises(BadRequestError):
        decoding.integer("f", text)


def test_lists_come_comma_separated_or_repeated_without_repetitions() -> None:
    assert decoding.decode_query({"fields": ["a, b", "b,,c"]}, NodeListQuery).fields == ["a", "b", "c"]


def test_secrets_are_masked_at_any_depth_and_the_original_stays() -> None:
    document = {
        "ipmi_password": "x",
        "a": [{"Auth_Token": "y", "b": 1}],
        "password": "",
        "c": {"configdrive": {"d": 1}},
    }
    masked = values.mask(document)
    assert masked == {
        "ipmi_password": "******",
        "a": [{"Auth_Token": "******", "b": 1}],
        "password": "",
        "c": {"configdrive": "******"},
    }
    assert document["ipmi_password"] == "x"


def test_of_a_huge_value_only_the_beginning_is_written() -> None:
    read = []

    class Number(float):
        def __repr__(self) -> str:
            read.append(self)
            return "1e+308"

    assert decoding.shown_value([Number()] * 1000).startswith("[1e+308, 1e+308, ")
    assert len(read) < 100
    assert decoding.shown_value({"a": "b" * 200}) == repr({"a": "b" * 200})[:80] + "…"
