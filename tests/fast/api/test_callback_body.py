"""What is stored of a callback."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ferroscope.api.baremetal import callback_body, floppy

_REAL = {"name": "/dev/sda", "size": 480_103_981_056, "serial": "S1"}
_OURS = {"name": "/dev/sdb", "size": len(floppy.build("a=b")), "rotational": True, "serial": "1-0000:00:02.0-1"}


@pytest.mark.parametrize(
    ("disks", "kept"),
    [
        ([_REAL, _OURS], [_REAL]),
        ([_OURS], []),
        ([_REAL], [_REAL]),
        ([1, {"size": None}], [1, {"size": None}]),
        ({}, {}),
    ],
)
def test_the_disk_with_our_parameters_is_no_part_of_the_machine(disks: Any, kept: Any) -> None:
    """A BMC that shows it as a USB disk; else the machine has one disk more, and another one after each boot."""
    inventory = {"interfaces": [{"mac_address": "02:00:00:00:00:01"}], "cpu": {"count": 1.0}, "disks": disks}
    raw = json.dumps({"inventory": inventory, "root_disk": _REAL}).encode()
    stored = callback_body.split(raw)
    assert json.loads(stored["inventory"]) == inventory | {"disks": kept}
    if kept == disks:
        assert stored["inventory"] in raw
