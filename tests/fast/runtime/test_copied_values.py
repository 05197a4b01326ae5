"""What ``ferroscope db copy`` makes of the values of a database that checks no types, before it writes them."""

from __future__ import annotations

import math
from typing import Any

import pytest
from sqlalchemy import BigInteger, Boolean, Column, Double, Integer, LargeBinary, MetaData, String, Table, Text

from ferroscope.db.copying.tables import COPIED
from ferroscope.db.copying.values import Checksum, ColumnLimits, Converter, OddValueError
from tests.support.rows import each

TABLE = Table(
    "things",
    MetaData(),
    Column("id", String(8), primary_key=True),
    Column("flag", Boolean, nullable=False),
    Column("number", Integer),
    Column("big", BigInteger),
    Column("time", Double),
    Column("document", Text),
    Column("content", LargeBinary),
)
GOOD = ("a1", True, 7, 1 << 40, 0.5, '{"a":1}', b"\0\xff")


def converted(limits: ColumnLimits | None = None, **changed: Any) -> tuple[Any, ...]:
    row = dict(zip(TABLE.columns.keys(), GOOD, strict=True)) | changed
    return Converter(TABLE, limits or ColumnLimits())(list(row.values()))


def test_every_column_of_the_schema_has_a_form() -> None:
    assert [Converter(table, ColumnLimits()) for table in COPIED]


def test_drivers_return_different_types_for_the_same_value() -> None:
    assert converted() == converted(flag=1, content=memoryview(b"\0\xff")) == GOOD
    assert type(converted(flag=0)[1]) is bool
    assert type(converted(time=1)[4]) is float
    assert math.copysign(1, converted(time=-0.0)[4]) == 1


@each(
    ("column", "value"),
    [
        ("id", "123456789"),
        ("id", 7),
        ("flag", None),
        ("flag", 2),
        ("flag", "Canary"),
        ("number", "Canary"),
        ("number", 1 << 31),
        ("number", 7.5),
        ("big", 1 << 63),
        ("time", "Canary"),
        ("time", math.inf),
        ("time", math.nan),
        ("document", b"Canary"),
        ("document", 7),
        ("content", "Canary"),
        ("content", 7),
    ],
)
def test_a_value_that_fits_nowhere_is_refused_with_its_place_and_is_not_shown(column: str, value: Any) -> None:
    with pytest.raises(
        OddValueError, match=f"table things, row {'.*' if column == 'id' else 'a1'}, column {column}: "
    ) as raised:
        converted(**{column: value})
    assert "Canary" not in str(raised.value)


def test_text_is_measured_in_characters_and_packets_in_bytes() -> None:
    assert converted(id="🧀" * 8)[0] == "🧀" * 8
    limits = ColumnLimits(largest=65_536 + 10)
    assert converted(limits, document="x" * 10)[5] == "x" * 10
    for column, value in (("document", "é" * 6), ("content", b"x" * 11)):
        with pytest.raises(OddValueError, match="max_allowed_packet"):
            converted(limits, **{column: value})


def test_nul_is_replaced_where_the_destination_cannot_store_it() -> None:
    convert = Converter(TABLE, ColumnLimits(nul=False))
    row = list(GOOD)
    row[5] = "a\0b"
    assert convert(row)[5] == "a\ufffdb"
    assert convert.replaced == 1
    assert convert(row)[6] == b"\0\xff"
    assert converted(document="a\0b")[5] == "a\0b"


def test_a_checksum_depends_on_all_values_and_not_on_the_order() -> None:
    def of(*rows: tuple[Any, ...]) -> tuple[int, str]:
        checksum = Checksum()
        checksum.add(rows)
        return checksum.rows, checksum.text

    assert of(GOOD, ("b", 1)) == of(("b", 1), GOOD)
    different = [(), (GOOD,), (GOOD, GOOD), (("a", 1),), (("a", "1"),), (("a", None),), (("a", b"1"),), (("1", "a"),)]
    assert len({of(*rows) for rows in different}) == len(different)
