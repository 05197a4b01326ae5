"""Health and firmware in stored data: what is searched, summed up, compared and shown, whatever the data is."""

from __future__ import annotations

from typing import Any

from ferroscope.hardware import diff, search_index
from ferroscope.hardware.expressions import matches
from ferroscope.hardware.parts import parts
from ferroscope.hardware.query import parse
from ferroscope_client.hardware import health
from tests.support import examples
from tests.support.rows import each

DISK = {"component": "drive", "name": "Disk 3", "serial": "s3", "health": "warning", "problem": "failure predicted"}
NIC = {"component": "nic", "name": "NIC.1", "model": "ConnectX-5", "version": "16.35"}
INVENTORY = {"system_vendor": {"firmware": {"version": "2.10"}}}


def stored(*ill: dict[str, Any], state: str = "ok", complete: bool = True, celsius: float = 25.0) -> dict[str, Any]:
    """Return plugin data with this health."""
    sensor = {"kind": "temperature", "name": "Inlet", "reading": celsius, "unit": "°C", "health": "critical"}
    good = {"component": "drive", "name": "Disk 1", "serial": "s1", "health": "ok", "life_left": 97.0}
    report = {"state": state, "parts": [good, *ill], "sensors": [sensor], "log": [], "complete": complete}
    return {"out_of_band": {"source": "redfish", "inventory": {"firmware": [NIC]}, "health": report}}


def changes(before: Any, after: Any) -> list[str]:
    return [one.text for one in diff.compare((INVENTORY, before), (INVENTORY, after))]


def test_the_summary_has_state_drives_and_each_model_of_component_once() -> None:
    data = stored(DISK, state="critical")
    data["out_of_band"]["inventory"]["firmware"] = [NIC, NIC | {"name": "NIC.2"}]
    summary = search_index.learn(INVENTORY, data).summary
    assert (summary["firmware"], summary["health"], summary["failing_drives"]) == ("2.10", "critical", 1)
    assert list(summary)[:2] == ["health", "failing_drives"], "they are counted in the first characters"
    assert summary["components"] == [{"component": "nic", "model": "ConnectX-5", "version": "16.35"}]
    assert not {"health", "failing_drives", "components"} & search_index.learn(INVENTORY, {}).summary.keys()


@each(
    ("query", "holds"),
    [
        ("health.state == critical", True),
        ("health[component == drive and problem ~ '*predicted*']", True),
        ("health.serial == s1", False),
        ("firmware == 2.10", True),
        ("firmware[component == bios and version == 2.10]", True),
        ("firmware[model ~ connectx* and version == 16.35]", True),
        ("has firmware.serial", False),
    ],
)
def test_problems_and_versions_are_found(query: str, holds: bool) -> None:
    rows = search_index.learn(INVENTORY, stored(DISK, state="critical")).rows
    assert matches(parse(query), rows, examples.node()) is holds


def test_temperatures_and_the_state_that_follows_them_are_no_change() -> None:
    before, after = stored(celsius=20), stored(celsius=90, state="critical")
    assert changes(before, after) == []
    assert (
        search_index.learn(INVENTORY, stored(celsius=20)).rows == search_index.learn(INVENTORY, stored(celsius=30)).rows
    )


def test_a_problem_is_new_once_and_gone_once() -> None:
    (new,) = changes(stored(), stored(DISK))
    assert new == "problem Disk 3 is new: drive, warning, failure predicted, serial s3"
    assert changes(stored(DISK), stored(DISK | {"problem": "2 % of its life left"})) == []
    assert changes(stored(DISK), stored(DISK | {"health": "critical"})) == ["problem Disk 3: state warning -> critical"]
    assert [text.split(":")[0] for text in changes(stored(DISK), stored())] == ["problem Disk 3 is gone"]


@each("unknown", [{}, stored(complete=False)])
def test_what_the_bmc_did_not_answer_is_neither_new_nor_gone(unknown: dict[str, Any]) -> None:
    assert changes(stored(DISK), unknown) == changes(unknown, stored(DISK)) == []


def test_only_another_version_of_firmware_is_a_change() -> None:
    newer, none = stored(), stored()
    newer["out_of_band"]["inventory"]["firmware"] = [NIC | {"version": "16.36"}]
    none["out_of_band"]["inventory"] = {}
    assert changes(stored(), newer) == ["firmware NIC.1: version 16.35 -> 16.36"]
    assert changes(stored(), none) == changes(none, stored()) == []


def test_the_ramdisk_tells_what_the_bmc_does_not() -> None:
    collected = {
        "network": {"eth0": {"firmware": "1", "product": "X"}},
        "disk": {"sda": {"rev": "R001", "model": "ST3"}},
    }
    alone = parts(INVENTORY, {"extra": collected})
    found = [one.fields for one in alone if one.kind == "firmware"]
    assert [(one["component"], one["version"]) for one in found] == [("bios", "2.10"), ("nic", "1"), ("disk", "R001")]
    both = parts(INVENTORY, {"extra": collected} | stored())
    found = [one.fields for one in both if one.kind == "firmware"]
    assert [one["version"] for one in found] == ["2.10", "16.35", "R001"]


def test_problems_are_shown_first() -> None:
    found = health.read(stored(DISK))
    assert found is not None
    assert [(one.name, one.value) for one in found.parts] == [
        ("Disk 3", "serial s3, failure predicted"),
        ("Disk 1", "serial s1, 97 % of its life left"),
    ]
    assert [one.value for one in found.sensors] == ["25 °C"]
    assert health.read({}) is None


@each(
    "odd",
    [
        *(None, 1, "x", [], [None], {"parts": {}}, {"state": [], "parts": [{"health": []}]}),
        {"parts": [{"component": {}, "name": 7, "health": "warning"}], "log": [{}]},
    ],
)
def test_data_of_any_shape_is_read(odd: Any) -> None:
    for data in (odd, {"out_of_band": odd}, {"out_of_band": {"health": odd, "inventory": {"firmware": odd}}},
                 {"extra": {"network": odd, "disk": {"sda": odd}}}):  # fmt: skip
        search_index.learn({"firmware": odd}, data)
        health.read(data)
        diff.compare((INVENTORY, data), (INVENTORY, stored(DISK)))
