"""Tables at fixed widths: what matters is always there, and a row is a line."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import pytest
from rich.console import Console

from ferroscope_client.cli.lookup import Listing
from ferroscope_client.cli.node import columns, timeline
from ferroscope_client.cli.output import console
from tests.support.rows import each

_ERROR = "the BMC cannot be reached: connection refused (bmc-unreachable). Check its address, its cables and its power."


def node(name: str = "rack1-u07", error: str | None = _ERROR) -> dict[str, Any]:
    return {
        "name": name,
        "uuid": "97ed61c2-d743-4849-ac7d-ca94bf8cb960",
        "provision_state": "inspect failed",
        "power_state": "power off",
        "maintenance": False,
        "driver": "fake-hardware",
        "provision_updated_at": None,
        "last_error": error,
        "hardware": {
            "vendor": "Dell Inc.",
            "product": "PowerEdge R650 (SKU=0912;ModelName=PowerEdge R650)",
            "serial": "DY4FGT3",
            "cpus": 160,
            "memory": 2**38,
            "storage": 4_320_000_000_000,
            "disks": 5,
        },
    }


def listed(nodes: list[dict[str, Any]]) -> Listing:
    return columns.listing(nodes, [column for column in columns.NODES if not column.wide])


def drawn(renderable: Any, width: int) -> list[str]:
    screen = Console(file=io.StringIO(), width=width, highlight=False, markup=False, emoji=False)
    screen.print(renderable)
    assert isinstance(screen.file, io.StringIO)
    lines = [line.rstrip() for line in screen.file.getvalue().splitlines()]
    assert max(map(len, lines)) <= width
    return lines


@each("width", [60, 80, 100, 120, 160, 1000])
@each("name", ["rack1-u07", "n", "a-rather-long-name-of-a-node-in.rack-17.example.org"])
def test_every_node_has_its_state_at_every_width(width: int, name: str) -> None:
    lines = drawn(listed([node(name), node("good", None)]), width)
    assert "STATE" in lines[0]
    assert sum("inspect failed" in line for line in lines) == 2
    assert "connection refused" in " ".join(" ".join(lines).split())
    assert width == 60 or any(line.strip().startswith(name) for line in lines)


def test_without_errors_there_is_a_line_for_each_node(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(drawn(listed([node(error=None)] * 3), 80)) == 4
    listed([node()] * 3).print(console())
    assert len(capsys.readouterr().out.splitlines()) == 4


def steps(*messages: str) -> Sequence[tuple[Any, ...]]:
    return [("0.12 s", "look-up", message, "worker@a-host.example.org/3") for message in messages]


@each("width", [40, 60, 80])
def test_on_a_very_narrow_terminal_the_story_is_below_its_step(width: int) -> None:
    lines = drawn(timeline._listing("AFTER", [*steps("a", "found by its MAC address")]), width)
    assert "found by its MAC address" in "\n".join(lines)
