"""Root device hints: which disks fit which hints, and which hints are none."""

from __future__ import annotations

from typing import Any

import pytest

from ferroscope.hooks.root_device import HintError, Hints
from tests.fast.hooks.runs import machine, run
from tests.support.rows import each

GIB = 1 << 30
DISKS = [
    {
        "name": "/dev/sda",
        "size": 100 * GIB,
        "model": "ST4000 NM",
        "serial": "A1",
        "rotational": True,
        "vendor": "Seagate",
    },
    {"name": "/dev/sdb", "size": 480 * GIB, "model": "Micron 5300 PRO", "serial": "777", "rotational": False},
    {"name": "/dev/sdc", "size": 960 * GIB, "model": "micron 5200", "serial": None, "rotational": False, "vendor": ""},
]


def fitting(**hints: Any) -> str:
    """Return the letters of the disks that fit."""
    return "".join(disk["name"][-1] for disk in Hints(hints).matching(DISKS))


@each(
    ("hint", "fit"),
    [
        (480, "b"),
        ("480", "b"),
        ("== 480", "b"),
        ("!= 480", "ac"),
        ("= 480", "bc"),
        (">= 480", "bc"),
        ("> 480", "c"),
        ("< 480", "a"),
        ("<=480", "ab"),
        ("<range-in> [ 100 960 ]", "abc"),
        ("<range-in> ( 100 960 )", "b"),
        ("<range-in> (100 960]", "bc"),
        ("<or> 100 <or> 960", "ac"),
    ],
)
def test_sizes_are_compared_as_gibibytes(hint: Any, fit: str) -> None:
    assert fitting(size=hint) == fit


@each("size", [480 * GIB, float(480 * GIB), str(480 * GIB), f" {480 * GIB}.0 "])
def test_the_size_of_a_disk_may_be_a_text(size: Any) -> None:
    disks = [
        {"name": "/dev/sda", "size": "480 GB"},
        {"name": "/dev/sdb", "size": size},
        {"name": "/dev/sdc", "size": {}},
    ]
    assert [disk["name"] for disk in Hints({"size": ">= 480"}).matching(disks)] == ["/dev/sdb"]
    result = run(["root-device"], machine(disks=disks), properties={"root_device": {"size": 480}})
    assert result.node.properties["local_gb"] == 479


@each("serial", ["N/A", "Unknown", "To be filled by O.E.M.", " "])
def test_a_serial_number_that_is_none_becomes_no_hint(serial: str) -> None:
    disks = [{"name": name, "serial": serial} for name in ("/dev/sda", "/dev/sdb")]
    result = run(["raid-device"], machine(disks=disks))
    assert "root_device" not in result.node.properties
    assert "no disk with a serial number" in result.notes[0].message


@each(
    ("hint", "fit"),
    [
        ("micron 5300 pro", "b"),
        ("s== MICRON 5300 PRO", "b"),
        ("s!= micron 5200", "ab"),
        ("<in> micron", "bc"),
        ("<in> 5", "bc"),
        ("<all-in> PRO micron", "b"),
        ("<or> micron 5200 <or> st4000 nm", "ac"),
        ("s< n", "bc"),
        ("s>= n", "a"),
        ("s<= micron 5200", "c"),
        ("s> micron 5300", "ab"),
    ],
)
def test_texts_are_compared_in_any_case(hint: str, fit: str) -> None:
    assert fitting(model=hint) == fit


@each(("hint", "fit"), [("== 777", "b"), ("> 700", "b"), ("!= 777", ""), ("<range-in> [ 1 1000 ]", "b")])
def test_numbers_in_texts_are_compared_with_those_that_are_numbers(hint: str, fit: str) -> None:
    assert fitting(serial=hint) == fit


def test_what_a_disk_does_not_tell_fits_nothing_but_a_difference() -> None:
    assert fitting(serial="none") == ""
    assert fitting(serial="s!= a1") == "bc"
    assert fitting(vendor="s!= other") == "ab"  # not told is different, an empty text is not looked at
    assert fitting(wwn="<in> 0") == ""
    assert not list(Hints({"size": 1}).matching([{"name": "x"}, {"size": "1"}, {"size": True}, {"size": 10**400}]))


@each("yes", [True, "true", "YES", "1", 1, "on", " t "])
def test_a_rotational_disk_is_asked_for_in_many_words(yes: Any) -> None:
    assert fitting(rotational=yes) == "a"


def test_all_hints_have_to_fit() -> None:
    assert fitting(rotational="no", size="> 480") == "c"
    assert fitting(rotational="no", size="< 480") == ""


@each(
    ("hints", "words"),
    [
        ({"colour": "red"}, "root device hints colour"),
        ([], "root device hints"),
        ({}, "root device hints"),
        ("/dev/sda", "root device hints"),
        ({"size": "large"}, "hint size"),
        ({"size": 0}, "hint size"),
        ({"size": 1.5}, "hint size"),
        ({"size": 10**400}, "hint size"),
        ({"size": True}, "hint size"),
        ({"size": "<in> 4"}, "operator <in>"),
        ({"size": "<range-in> [ 5 1 ]"}, "after its end"),
        ({"size": "<range-in> 1 5"}, "range-in"),
        ({"size": ">="}, "no value after >="),
        ({"serial": ""}, "is empty"),
        ({"serial": 777}, "hint serial"),
        ({"serial": "> a"}, "requires a number"),
        ({"serial": "x" * 5000}, "too long"),
        ({"rotational": "perhaps"}, "true or false"),
    ],
)
def test_hints_that_are_none_are_refused_in_words(hints: Any, words: str) -> None:
    with pytest.raises(HintError, match=words):
        Hints(hints)
