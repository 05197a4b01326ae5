"""``ferroscope export``: which machines, to where, and as whom."""

from __future__ import annotations

import csv
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from ferroscope_client.errors import Exit
from tests.api.service import Service
from tests.fast.cli.running import NO_CREDENTIALS
from tests.system.cli.console import Shell
from tests.system.extending.outside import from_guide, install

INVENTORY = {"system_vendor": {"manufacturer": "Dell", "serial_number": "=1+1"}, "memory": {"physical_mb": 65536}}


@pytest.fixture
def fleet(service: Service, shell: Shell) -> None:
    for name in ("a1", "a2", "b1"):
        service.learn(service.enrol(name=name, resource_class=name[0]), INVENTORY)
    shell("node", "set", "a1", "b1", "--label", "rack=r1", check=0)
    service.alter(service.enrol(), inbox=True)


def names(shell: Shell, *arguments: str) -> list[str]:
    return [row["name"] for row in json.loads(shell("export", "json", *arguments, check=0).stdout)]


@pytest.mark.usefixtures("fleet")
def test_the_whole_fleet_or_a_part_of_it_is_written(shell: Shell) -> None:
    assert names(shell) == ["a1", "a2", "b1"]  # without the inbox
    assert names(shell, "-l", "rack=r1") == ["a1", "b1"]
    assert names(shell, "--resource-class", "a", "-l", "!rack") == ["a2"]
    assert names(shell, "--state", "available", "--no-maintenance") == []
    rows = list(csv.DictReader(shell("export", "csv", check=0).stdout.splitlines()))
    assert {(row["vendor"], row["serial"], row["memory_bytes"]) for row in rows} == {("Dell", "'=1+1", str(2**36))}


@pytest.mark.usefixtures("fleet")
def test_a_file_is_replaced_when_the_export_is_complete(shell: Shell, tmp_path: Path) -> None:
    directory = tmp_path / "exports"
    directory.mkdir()
    file = directory / "fleet.csv"
    shell("export", "csv", "--output", str(file), check=0)
    assert file.read_text().startswith("name,uuid,")
    file.chmod(0o604)
    shell("export", "json", "--output", str(file), check=0)
    assert [row["name"] for row in json.loads(file.read_text())] == ["a1", "a2", "b1"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o604
    before = file.read_bytes()
    shell("--url", "http://127.0.0.1:9", "export", "json", "--output", str(file), check=Exit.UNREACHABLE)
    assert file.read_bytes() == before
    assert [one.name for one in directory.iterdir()] == ["fleet.csv"]


@pytest.mark.parametrize("arguments", [["docx"], ["csv", "-p", "colour=red"], ["csv", "-p", "colour"]])
def test_a_format_or_parameter_that_does_not_exist_is_a_usage_error(shell: Shell, arguments: list[str]) -> None:
    shell("export", *arguments, check=Exit.USAGE)


@pytest.mark.usefixtures("fleet")
def test_an_exporter_is_a_package(service: Service, shell: Shell, tmp_path: Path) -> None:
    place = install(from_guide("write-an-exporter.md", "lines_exporter.py"), tmp_path)
    service.learn("a2", {"system_vendor": {"serial_number": "9YPX7M2"}})

    def lines(*parameters: str) -> str:
        command = [sys.executable, "-m", "ferroscope", "--url", shell.url, "export", "lines", *parameters]
        kept = {name: value for name, value in os.environ.items() if name not in NO_CREDENTIALS}
        environment = {**kept, "PYTHONPATH": str(place)}
        return subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout

    assert lines("-p", "prefix=serial ") == "serial 9YPX7M2 a2\n"
