"""``ferroscope node list``: filters, order, fields and formats."""

from __future__ import annotations

import csv

import pytest

from ferroscope_client.errors import Exit
from tests.api.service import Service
from tests.support import examples
from tests.system.cli.console import Shell


def test_the_list_can_be_narrowed_sorted_and_limited(shell: Shell, service: Service) -> None:
    for name, driver in (("b", "fake-hardware"), ("a", "sim"), ("c", "fake-hardware")):
        service.enrol(name=name, driver=driver)
    b = service.node("b").uuid
    service.wait(b)
    service.fail(b)
    assert [node["name"] for node in shell.json("node", "list")] == ["a", "b", "c"]
    assert [node["name"] for node in shell.json("node", "list", "--sort", "id")] == ["b", "a", "c"]
    assert [node["name"] for node in shell.json("node", "list", "--limit", "1")] == ["a"]
    assert [node["name"] for node in shell.json("node", "list", "--sort", "name:desc")] == ["c", "b", "a"]
    assert [node["name"] for node in shell.json("node", "list", "--driver", "sim")] == ["a"]
    assert [node["name"] for node in shell.json("node", "list", "--state", "inspect failed")] == ["b"]
    assert [node["name"] for node in shell.json("node", "list", "--failed")] == ["b"]
    assert len(shell.json("node", "list", "--limit", "2")) == 2
    assert shell.json("node", "list", "--auto-discovered") == []
    assert len(shell.json("node", "list", "--no-maintenance")) == 3


def test_a_list_longer_than_a_page_is_shown_whole(shell: Shell, service: Service) -> None:
    names = [f"n{number:04}" for number in range(1005)]
    service.store.write(lambda tx: [tx.nodes.add(examples.node(name=name)) for name in names])
    assert {node["name"] for node in shell.json("node", "list", "--fields", "name")} == set(names)
    assert len(shell.json("node", "list", "--limit", "1002")) == 1002


def test_fields_are_those_that_are_asked_for_in_their_order(shell: Shell) -> None:
    shell("node", "create", "--driver", "fake-hardware", "n1", "-p", "cpus:=8", check=0)
    assert shell.json("node", "list", "--fields", "properties,name") == [{"properties": {"cpus": 8}, "name": "n1"}]
    assert shell.lines("node", "list", "--fields", "properties,name") == ["PROPERTIES  NAME", "cpus = 8    n1"]
    assert "colour" in shell("node", "list", "--fields", "colour", check=Exit.USAGE).stderr


def test_lists_are_in_natural_order_with_the_hardware_and_as_csv(shell: Shell, service: Service) -> None:
    vendor = {"manufacturer": "Dell Inc.", "product_name": "PowerEdge R650 (SKU=0912)", "serial_number": "DY4FGT3"}
    for name in ("sim-10", "sim-9"):
        service.enrol(name=name)
    uuid = service.enrol(name="sim-2")
    service.learn(uuid, {"system_vendor": vendor, "memory": {"physical_mb": 1024 * 256}})
    assert [node["name"] for node in shell.json("node", "list")] == ["sim-2", "sim-9", "sim-10"]
    row = next(csv.DictReader(shell.lines("node", "list", "-o", "csv")))
    assert (row["name"], row["vendor"], row["model"]) == ("sim-2", "Dell Inc.", "PowerEdge R650 (SKU=0912)")
    assert (row["serial"], row["memory"], row["uuid"]) == ("DY4FGT3", str(2**38), uuid)
    header, first, *_ = shell.lines("node", "list", "-o", "wide")
    assert header.split()[-2:] == ["UUID", "ERROR"]
    assert uuid in first
    shown = dict(line.split("  ", 1) for line in shell.lines("node", "show", "sim-2") if "  " in line)
    assert shown["Serial number"].strip() == "DY4FGT3"
    assert shown["Memory"].strip() == "256 GiB"


@pytest.mark.parametrize("asked", [("--no-maintenance",), ("--owner", ""), ("--failed",), ("--enrolled",)])
def test_a_filter_that_nothing_fits_is_reported_as_such(shell: Shell, asked: tuple[str, ...]) -> None:
    assert shell.lines("node", "list", *asked)[-1] == "No matching nodes."
    assert "ferroscope node create" in shell.lines("node", "list")[-1]
