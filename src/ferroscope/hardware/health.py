"""The health of a machine as its BMC has last reported it, out of the data of its last inspection. Pure."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from ferroscope.hardware.parts import mapping, mappings, number, text

STATES: Final = ("ok", "warning", "critical")


class Line(msgspec.Struct, frozen=True):
    """A part or a sensor: ``value`` is a problem or a reading."""

    kind: str
    name: str
    health: str
    value: str = ""


class Entry(msgspec.Struct, frozen=True):
    """An entry of an event log; ``created`` as the BMC wrote it."""

    created: str
    severity: str
    message: str


class Health(msgspec.Struct, frozen=True):
    """``parts`` and ``sensors``: problems first. Not ``complete``: the BMC did not answer everything in time.

    ``read_at`` is the time in RFC 3339, "" if it is unknown; ``kept``: the last inspection did not ask the BMC.
    """

    state: str
    parts: list[Line]
    sensors: list[Line]
    log: list[Entry]
    complete: bool
    read_at: str = ""
    kept: bool = False


def report(plugin_data: Any) -> dict[str, Any]:
    """Return what is stored, empty if nothing is."""
    return mapping(mapping(mapping(plugin_data).get("out_of_band")).get("health"))


def worst(*states: str | None) -> str | None:
    """Return the worst of these states; None if none is known."""
    return max((one for one in states if one in STATES), key=STATES.index, default=None)


def read(plugin_data: Any) -> Health | None:
    """Return the health; None if the BMC reported none."""
    found, around = report(plugin_data), mapping(mapping(plugin_data).get("out_of_band"))
    if not found:
        return None
    parts = [_part(one) for one in mappings(found.get("parts"))]
    sensors = [_sensor(one) for one in mappings(found.get("sensors"))]
    log = [
        Entry(text(one.get("created")) or "", text(one.get("severity")) or "", text(one.get("message")) or "")
        for one in mappings(found.get("log"))
    ]
    return Health(
        state=worst(text(found.get("state"))) or "unknown",
        parts=sorted(parts, key=_rank),
        sensors=sorted(sensors, key=_rank),
        log=log,
        complete=found.get("complete") is True,
        read_at=text(around.get("read_at")) or "",
        kept=around.get("kept") is True,
    )


def _rank(line: Line) -> int:
    return -STATES.index(line.health) if line.health in STATES else 1


def _part(one: dict[str, Any]) -> Line:
    left = number(one.get("life_left"))
    model, serial = text(one.get("model")), text(one.get("serial"))
    known = (model, f"serial {serial}" if serial else None, text(one.get("problem")))
    life = None if left is None or "life" in (known[-1] or "") else f"{left:g} % of its life left"
    return _line(one, "component", ", ".join(filter(None, (*known, life))))


def _sensor(one: dict[str, Any]) -> Line:
    reading = number(one.get("reading"))
    return _line(one, "kind", "" if reading is None else f"{reading:g} {text(one.get('unit')) or ''}".rstrip())


def _line(one: dict[str, Any], kind: str, value: str) -> Line:
    return Line(text(one.get(kind)) or "", text(one.get("name")) or "", text(one.get("health")) or "unknown", value)
