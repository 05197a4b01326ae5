"""Cases of disks: RAID volumes that come, root device hints, and disks that say little of themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.corpus import Case
from tests.corpus.machines import body, disk


def cases() -> Iterator[Case]:
    """Return the cases, without what is expected of them."""
    yield from _disks()
    yield from _hints()


def _disks() -> Iterator[Case]:
    first = body({"disks": [disk("a")]})["inventory"]
    yield Case(name="raid-found", about="a new disk since the inspection before", previous=first, body=body())
    yield Case(
        name="raid-known",
        about="the root device is known",
        previous=first,
        body=body(),
        properties={"root_device": {"name": "/dev/sda"}},
    )
    yield Case(name="raid-none-new", about="no disk is new", previous=body()["inventory"], body=body())
    yield Case(
        name="raid-two-new", about="two disks are new", previous=first, body=body({"disks": [disk("b"), disk("c")]})
    )
    anonymous = body({"disks": [disk("a", serial=None), disk("b", serial=None)]})["inventory"]
    yield Case(
        name="raid-serials-before",
        about="no disk had a serial number before, one has now",
        previous=anonymous,
        body=body({"disks": [disk("a")]}),
    )
    yield Case(
        name="raid-no-disks-before",
        about="there were no disks before",
        previous=body({"disks": None})["inventory"],
        body=body({"disks": [disk("a")]}),
    )
    yield Case(
        name="raid-no-serials",
        about="no disk has a serial number now",
        previous=first,
        body=body({"disks": [disk("a", serial=None)]}),
    )
    yield Case(name="disk-small", about="the root disk is smaller than 1 GiB", body=body({"disks": [disk("a", 0.5)]}))
    yield Case(name="disk-of-one", about="the root disk has 1 GiB", body=body({"disks": [disk("a", 1)]}))
    yield Case(
        name="disk-without-size", about="the root disk has no size", body=body({"disks": [disk("a", size=None)]})
    )
    yield Case(name="no-root-disk", about="the ramdisk chose no disk", body=body(root_disk=None))


def _hints() -> Iterator[Case]:
    disks = [
        disk("a", 100, rotational=True, model="ST4000NM0035", vendor="Seagate"),
        disk("b", 480),
        disk("c", 960, serial=None, vendor=None, model="Micron 5300 PRO"),
        disk("d", 1920, serial="777", model="micron 5200"),
    ]
    hints: dict[str, dict[str, Any]] = {
        "size": {"size": 480},
        "size-text": {"size": "== 960"},
        "size-least": {"size": "= 400"},
        "size-operators": {"size": "> 100", "rotational": "no"},
        "size-most": {"size": "<= 500", "rotational": False},
        "size-not": {"size": "!= 100"},
        "size-range": {"size": "<range-in> [ 900 1000 )"},
        "size-or": {"size": "<or> 960 <or> 1920"},
        "size-in": {"size": "<in> 9"},
        "size-negative": {"size": -1},
        "size-nonsense": {"size": "large"},
        "serial": {"serial": "serial-b"},
        "serial-not": {"serial": "s!= SERIAL-A", "size": ">= 900"},
        "serial-none": {"serial": "none"},
        "serial-number": {"serial": "== 777"},
        "model-in": {"model": "<in> micron"},
        "model-words": {"model": "Micron 5300 PRO"},
        "model-all-in": {"model": "<all-in> 5300 micron"},
        "model-or": {"model": "<or> no such <or> micron 5300 pro <or> other"},
        "model-order": {"model": "s> n", "vendor": "s== seagate"},
        "name-and-more": {"name": "/dev/sdd", "hctl": "3:0:0:0", "wwn": "0x500a0751e000000d", "by_path": "s!= x"},
        "unknown": {"colour": "red"},
        "no-fit": {"name": "/dev/nvme0n1"},
        "not-text": {"serial": 777},
        "empty": {"serial": ""},
        "rotational-nonsense": {"rotational": "perhaps"},
    }
    for name, hint in hints.items():
        yield Case(
            name=f"hint-{name}",
            about=f"the root device hint {hint}",
            hooks=["validate-interfaces", "root-device"],
            properties={"root_device": hint},
            body=body({"disks": disks}),
        )
    yield Case(
        name="hint-skip",
        about="a disk that fits is excluded",
        hooks=["validate-interfaces", "root-device"],
        properties={
            "root_device": {"rotational": False},
            "skip_block_devices": [{"name": "/dev/sdb"}, {"size": "> 1000"}],
        },
        body=body({"disks": disks}),
    )
    yield Case(
        name="hint-no-disks",
        about="hints, and no disks",
        hooks=["validate-interfaces", "root-device"],
        properties={"root_device": {"size": 1}},
        body=body({"disks": None}),
    )
