"""The health of a machine as its BMC last reported it, from the data of its last inspection. Pure."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from ferroscope_client.hardware.readings import mapping, mappings, number, text

STATES: Final = ("ok", "warning", "critical")


class HealthReading(msgspec.Struct, frozen=True):
    """A part or a sensor: ``value`` is a problem or a reading."""

    kind: str
    name: str
    health: str
    value: str = ""


class EventLogEntry(msgspec.Struct, frozen=True):
    """An entry of an event log; ``created`` as the BMC wrote it."""

    created: str
    severity: str
    message: str


class HardwareHealth(msgspec.Struct, frozen=True):
    """``parts`` and ``sensors``: problems first. Not ``complete``: the BMC did not answer everything in time.

    ``read_at`` is the time in RFC 3339, "" if it is unknown; ``kept``: the last inspection did not ask the BMC.
    """

    state: str
    parts: list[HealthReading]
    sensors: list[HealthReading]
    log: list[EventLogEntry]
    complete: bool
    read_at: str = ""
    kept: bool = False


def report(plugin_data: Any) -> dict[str, Any]:
    """Return the stored report, empty if there is none."""
    return mapping(mapping(mapping(plugin_data).get("out_of_band")).get("health"))


def worst(*states: str | None) -> str | None:
    """Return the worst of these states; None if all are unknown."""
    return max((state for state in states if state in STATES), key=STATES.index, default=None)


def read(plugin_data: Any) -> HardwareHealth | None:
    """Return the health; None if the BMC reported none."""
    stored, out_of_band = report(plugin_data), mapping(mapping(plugin_data).get("out_of_band"))
    if not stored:
        return None
    parts = [_part(part) for part in mappings(stored.get("parts"))]
    sensors = [_sensor(sensor) for sensor in mappings(stored.get("sensors"))]
    log = [
        EventLogEntry(
            text(entry.get("created")) or "", text(entry.get("severity")) or "", text(entry.get("message")) or ""
        )
        for entry in mappings(stored.get("log"))
    ]
    return HardwareHealth(
        state=worst(text(stored.get("state"))) or "unknown",
        parts=sorted(parts, key=_rank),
        sensors=sorted(sensors, key=_rank),
        log=log,
        complete=stored.get("complete") is True,
        read_at=text(out_of_band.get("read_at")) or "",
        kept=out_of_band.get("kept") is True,
    )


def _rank(line: HealthReading) -> int:
    return -STATES.index(line.health) if line.health in STATES else 1


def _part(part: dict[str, Any]) -> HealthReading:
    left = number(part.get("life_left"))
    model, serial = text(part.get("model")), text(part.get("serial"))
    described = (model, f"serial {serial}" if serial else None, text(part.get("problem")))
    life = None if left is None or "life" in (described[-1] or "") else f"{left:g} % of its life left"
    return _line(part, "component", ", ".join(filter(None, (*described, life))))


def _sensor(sensor: dict[str, Any]) -> HealthReading:
    reading = number(sensor.get("reading"))
    return _line(sensor, "kind", "" if reading is None else f"{reading:g} {text(sensor.get('unit')) or ''}".rstrip())


def _line(part: dict[str, Any], kind: str, value: str) -> HealthReading:
    return HealthReading(
        text(part.get(kind)) or "", text(part.get("name")) or "", text(part.get("health")) or "unknown", value
    )
