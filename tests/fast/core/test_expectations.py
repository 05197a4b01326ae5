"""Expected hardware: whom it concerns, what deviates, and what is shown instead."""

from __future__ import annotations

from typing import Any

import pytest

from ferroscope.hardware import expectations
from ferroscope.hardware.expectations import Deviation, ExpectationError
from ferroscope.hardware.search_index import IndexRow
from ferroscope_client.core.expectation import Expectation
from tests.support import examples
from tests.support.rows import each

GIB = float(2**30)
ROWS = [
    IndexRow("node", 0, t1="dell", t2="poweredge r740", n1=192 * GIB),
    IndexRow("disk", 0, t6="nvme", n1=3.84e12),
    IndexRow("disk", 1, t6="nvme", n1=3.84e12),
    IndexRow("disk", 2, t6="hdd", n1=1e12),
    IndexRow("nic", 0, t6="sw-a", t7="ethernet7", n1=25e9),
    IndexRow("nic", 1),
]


def deviating(*conditions: str, **fields: Any) -> list[Deviation]:
    expectation = Expectation(name="web", expect=list(conditions), **fields)
    node = examples.node(name="rack1-u07", labels={"rack": "r1"}, driver="redfish")
    return expectations.deviations(expectations.check([expectation]), ROWS, node)


@each(
    ("condition", "found"),
    [
        ("memory >= 384GiB", "memory: 192GiB"),
        ("product ~ *r750*", "product: poweredge r740"),
        ("count(disk[type == nvme]) == 4", "2 of 3 fit; disk.type: 2 x nvme, hdd"),
        ("nic[switch == sw-b and port == ethernet7]", "nic.switch: sw-a, unknown; nic.port: ethernet7, unknown"),
        ("disk.size >= 8TB", "disk.size: 2 x 3840GB, 1000GB"),
        ("nic.speed >= 100G", "nic.speed: 25G, unknown"),
        ("has gpu", "no gpu"),
        ("not has disk[type == hdd]", "disk.type: 2 x nvme, hdd"),
        ("driver == ipmi", "driver: redfish"),
        ("r750", "no such data"),
        ("has gpu and memory >= 1GiB or cpu.count > 1", "no gpu; memory: 192GiB; no cpu"),
    ],
)
def test_a_deviation_says_what_was_found_instead(condition: str, found: str) -> None:
    assert deviating(condition) == [Deviation("web", "warning", condition, found)]


@each(
    ("condition", "is_about"),
    [
        ("nic.switch == sw-a", True),
        ("nic[port ~ ethernet* and speed >= 10G]", True),
        ("count(nic[switch == sw-a]) == 2", True),
        ("not has nic.port", True),
        ("memory >= 1GiB or nic.switch == sw-a", True),
        ("nic.speed >= 10G", False),
        ("has nic", False),
        ("product == sw-a", False),
        ("nonsense ===", False),
    ],
)
def test_conditions_about_wiring_are_known(condition: str, *, is_about: bool) -> None:
    assert expectations.is_about_wiring(condition) is is_about


def test_what_is_as_expected_does_not_deviate() -> None:
    assert deviating("memory == 192GiB", "count(disk) == 3", "nic.switch == sw-a", "label.rack == r1") == []


@each(
    ("choice", "concerned"),
    [
        ({"nodes": "rack=r1"}, True),
        ({"nodes": "rack=r2"}, False),
        ({"names": "rack1-*"}, True),
        ({"names": "rack2-*"}, False),
        ({"nodes": "rack=r1", "names": "rack1-u08"}, False),
        ({}, True),
    ],
)
def test_an_expectation_concerns_the_nodes_that_it_chooses(choice: dict[str, str], concerned: bool) -> None:
    assert bool(deviating("has gpu", **choice)) is concerned


def test_what_is_kept_of_a_machine_that_is_all_wrong_is_bounded() -> None:
    many = [Expectation(name=str(number), expect=["has gpu"] * 50) for number in range(5)]
    assert len(expectations.deviations(expectations.check(many), ROWS, examples.node())) == 200


@each(
    "wrong",
    [
        [Expectation(name="a", expect=["memory >="])],
        [Expectation(name="a", nodes="a b", expect=["has gpu"])],
        [Expectation(name="a", expect=["has gpu"])] * 2,
        [Expectation(name="a", expect=["has gpu or not deviating == yes"])],
        [Expectation(name=str(number), expect=["has gpu"]) for number in range(501)],
    ],
)
def test_expectations_that_cannot_be_are_refused(wrong: list[Expectation]) -> None:
    with pytest.raises(ExpectationError):
        expectations.check(wrong)
