"""``ferroscope search``: what it shows, in which order, and how it ends."""

from __future__ import annotations

import csv

from ferroscope_client.errors import Exit
from tests.api.service import Service
from tests.system.cli.console import Shell

VENDOR = {"manufacturer": "Dell Inc.", "product_name": "PowerEdge R650 (SKU=0912;ModelName=PowerEdge R650)"}


def learnt(service: Service, name: str, serial: str) -> str:
    ident = service.enrol(name=name)
    service.learn(ident, {"system_vendor": VENDOR | {"serial_number": serial}, "memory": {"physical_mb": 524288}})
    return ident


def test_what_is_found_is_spelled_as_the_machine_spells_it_in_natural_order(shell: Shell, service: Service) -> None:
    for name, serial in (("sim-10", "NYH0GRY"), ("sim-9", "RFXVU05"), ("sim-2", "c14TPG1")):
        learnt(service, name, serial)
    found = shell.json("search", "vendor == dell")
    assert [(node["name"], node["serial"]) for node in found] == [
        ("sim-2", "c14TPG1"), ("sim-9", "RFXVU05"), ("sim-10", "NYH0GRY"),
    ]  # fmt: skip
    assert {node["product"] for node in found} == {VENDOR["product_name"]}
    few = [node["name"] for node in shell.json("search", "vendor == dell", "--limit", "2")]
    assert few in (["sim-2", "sim-9"], ["sim-2", "sim-10"], ["sim-9", "sim-10"])
    lines = shell.lines("search", "nyh0gry")
    assert lines[1].split()[:2] == ["sim-10", "enroll"]
    assert "SKU=" not in lines[1]
    (row,) = csv.DictReader(shell.lines("search", "name", "==", "SIM-10", "-o", "csv"))
    assert (row["serial"], row["vendor"]) == ("NYH0GRY", "Dell Inc.")


def test_nothing_found_and_not_understood_are_different_ends(shell: Shell) -> None:
    shell("search", "memory_gb >= 512", check=Exit.FAILURE)
    assert shell.json("search", "nobody", check=Exit.FAILURE) == []
    shell("search", "memry >= 512", check=Exit.USAGE)
    shell("search", check=Exit.USAGE)
