"""The health of a machine's parts, its sensors, the last problems in its event log, and its versions of firmware.

Healthy parts are not listed, except drives. Nothing here is required: ``Reader`` limits time and requests, and what a
service lacks is left out. The most important parts are read first. Source: DMTF's Redfish schemas (DSP8010).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from ferroscope.bmc.redfish import inventory
from ferroscope.bmc.redfish.inventory import drop_unknown
from ferroscope.bmc.redfish.resources import Reader, following, is_gone, path_of
from ferroscope.bmc.redfish.system import System
from ferroscope.core.model import Document
from ferroscope_client.core.values import one_line
from ferroscope_client.hardware.health import STATES, worst
from ferroscope_client.hardware.readings import mapping, mappings, number, text

_MAX_REQUESTS: Final = 250
_MAX_PAGES: Final = 10
# At this percentage of its life left, or less, a drive counts as worn out.
_WORN_OUT_PERCENT: Final = 10
_MAX_MANAGERS: Final = 4
_MAX_PARTS: Final = 128
_MAX_SENSORS: Final = 200
_MAX_ENTRIES: Final = 20
_MAX_LOGS: Final = 2
_MAX_FIRMWARE: Final = 128
_MAX_TEXT_CHARACTERS: Final = 255
_MAX_MESSAGE_CHARACTERS: Final = 300
_SKIP: Final = re.compile(r"(?<=[$]skip=)\d+")
# What an entry of the firmware inventory belongs to, by the path of the resource that it names.
_RELATED: Final = (
    ("/bios", "bios"), ("/networkadapters/", "nic"), ("/networkinterfaces/", "nic"), ("/ethernetinterfaces/", "nic"),
    ("/drives/", "disk"), ("/storage", "controller"), ("/powersupplies/", "power supply"), ("/managers/", "bmc"),
)  # fmt: skip


def read_health(system: System) -> Document:
    """Return ``firmware``, a list, and ``health``, both as ``contracts.bmc.ReportsHealth`` has them."""
    reader, resource = Reader(system._conn, _MAX_REQUESTS), system.document
    links = mapping(resource.get("Links"))
    storages = list(reader.members(resource.get("Storage"), _MAX_PARTS))
    drives = inventory.drives(reader, resource, storages, _MAX_PARTS)
    managers = list(reader.resources(links.get("ManagedBy"), _MAX_MANAGERS))
    parts = [_drive(drive) for drive in drives]
    parts += _unhealthy("storage", storages)
    parts += _group(reader, "memory", resource.get("MemorySummary"), resource.get("Memory"))
    parts += _group(reader, "processor", resource.get("ProcessorSummary"), resource.get("Processors"))
    chassis = list(reader.resources(links.get("Chassis"), _MAX_MANAGERS))
    environments = [_environment(reader, enclosure) for enclosure in chassis]
    sensors = [sensor for measured, _ in environments for sensor in measured]
    supplies = [supply for _, supplied in environments for supply in supplied]
    parts += _unhealthy("power supply", supplies)
    for sensor in sensors:
        if sensor["kind"] == "fan" and sensor["health"] in STATES[1:]:
            parts.append({"component": "fan", "name": sensor["name"], "health": sensor["health"]})
    log = _log(reader, resource, managers)
    firmware = [
        *(_firmware("bmc", manager, "FirmwareVersion") for manager in managers),
        *(_firmware("disk", drive, "FirmwareVersion", "Revision") for drive in drives),
        *(_firmware("controller", controller, "FirmwareVersion") for controller in _controllers(storages)),
        *(_firmware("power supply", supply, "FirmwareVersion") for supply in supplies),
        *_adapters(reader, chassis),
    ]
    versioned = [entry for entry in firmware if "version" in entry]
    known_components = {"bios" if resource.get("BiosVersion") else "", *(entry["component"] for entry in versioned)}
    versioned += _other_firmware(reader, system, known_components)
    state = worst(_status(resource), *(part["health"] for part in parts))
    health = {
        "state": state,
        "parts": parts[: 2 * _MAX_PARTS],
        "sensors": sensors[:_MAX_SENSORS],
        "log": log,
        "complete": reader.complete,
    }
    return {"firmware": versioned[:_MAX_FIRMWARE], "health": health if state or sensors or log else {}}


def _status(resource: Document) -> str | None:
    """Return the health of a part; None if it is not there, or says nothing."""
    if is_gone(resource):
        return None
    status = mapping(resource.get("Status"))
    return worst(*(str(status.get(name)).lower() for name in ("Health", "HealthRollup")))


def _text(value: Any, max_characters: int = _MAX_TEXT_CHARACTERS) -> str | None:
    stripped = text(value)
    return one_line(stripped, max_characters) if stripped else None


def _part(component: str, resource: Document, problem: str | None = None) -> Document:
    return drop_unknown(
        component=component,
        name=_text(resource.get("Name")) or _text(resource.get("Id")) or component,
        model=_text(resource.get("Model")) or _text(resource.get("PartNumber")),
        serial=_text(resource.get("SerialNumber")),
        health=_status(resource) or "ok",
        problem=problem,
    )


def _drive(drive: Document) -> Document:
    life_left = number(drive.get("PredictedMediaLifeLeftPercent"))
    is_predicted = drive.get("FailurePredicted") is True
    is_worn = life_left is not None and 0 <= life_left <= _WORN_OUT_PERCENT
    problem = "failure predicted" if is_predicted else f"{life_left:g} % of its life left" if is_worn else None
    part = _part("drive", drive, problem) | drop_unknown(life_left=life_left)
    return part | {"health": worst(part["health"], "warning" if problem else None)}


def _unhealthy(component: str, resources: Iterable[Document]) -> list[Document]:
    return [part for resource in resources if (part := _part(component, resource))["health"] != "ok"]


def _group(reader: Reader, component: str, summary: Any, link: Any) -> list[Document]:
    """Return the unhealthy parts; they are not even read if the summary says that all are healthy."""
    overall = _status(mapping(summary))
    if overall == "ok":
        return []
    parts = _unhealthy(component, reader.members(link, _MAX_PARTS))
    return parts or ([{"component": component, "name": component, "health": overall}] if overall else [])


def _environment(reader: Reader, chassis: Document) -> tuple[list[Document], list[Document]]:
    """Return the sensors and the power supplies of a chassis, by the older schemas or the newer ones."""
    thermal, power = reader.get(chassis.get("Thermal")), reader.get(chassis.get("Power"))
    sensors = [
        *_sensors(thermal.get("Temperatures"), "temperature", "ReadingCelsius", "°C"),
        *_sensors(thermal.get("Fans"), "fan", "Reading", "ReadingUnits"),
        *_sensors(power.get("Voltages"), "voltage", "ReadingVolts", "V"),
        *_sensors(power.get("PowerControl"), "power", "PowerConsumedWatts", "W"),
    ]
    supplies = mappings(power.get("PowerSupplies"))[:_MAX_PARTS]
    if not sensors:
        documents = list(reader.members(chassis.get("Sensors"), _MAX_SENSORS))
        sensors = list(_sensors(documents, "", "Reading", "ReadingUnits"))
    if not supplies:
        subsystem = reader.get(chassis.get("PowerSubsystem"))
        supplies = list(reader.members(subsystem.get("PowerSupplies"), _MAX_PARTS))
    return sensors, supplies


def _sensors(resources: Any, kind: str, reading: str, unit: str) -> Iterator[Document]:
    """Yield sensors; ``unit`` is a unit, or the property that has it. Without ``kind``, the sensor tells its kind."""
    for sensor in mappings(resources)[:_MAX_SENSORS]:
        measured, state = number(sensor.get(reading)), _status(sensor)
        if measured is None and state in (None, "ok"):
            continue
        yield drop_unknown(
            kind=kind or (_text(sensor.get("ReadingType"), 40) or "sensor").lower(),
            name=_text(sensor.get("Name")) or _text(sensor.get("FanName")) or _text(sensor.get("MemberId")) or "sensor",
            reading=measured,
            unit=_text(sensor.get(unit), 20) if unit.startswith("Reading") else unit,
            health=state or "unknown",
        )


def _log(reader: Reader, system: Document, managers: list[Document]) -> list[Document]:
    """Return the newest warnings and errors of the event logs, the newest first."""
    services = list(reader.members(system.get("LogServices"), 8))
    for manager in managers:
        services += filter(_is_sel, reader.members(manager.get("LogServices"), 8))
    services.sort(key=lambda service: not _is_sel(service))
    entries: list[Document] = []
    for service in services[:_MAX_LOGS]:
        at = path_of(service.get("Entries"))
        for page in reader.pages(_newest_page(reader, at), at, _MAX_PAGES):
            entries += _entries(page)
    entries.sort(key=lambda entry: str(entry.get("created", "")), reverse=True)
    return entries[:_MAX_ENTRIES]


def _is_sel(service: Document) -> bool:
    return service.get("LogEntryType") == "SEL" or str(service.get("Id")).lower() in ("sel", "iml")


def _newest_page(reader: Reader, at: str) -> Document:
    """Return the page with the newest entries, or one before it: a log may have thousands, and the oldest first."""
    page = reader.get(at)
    second, count = following(page, at), number(page.get("Members@odata.count"))
    created = [str(entry.get("Created") or "") for entry in mappings(page.get("Members"))]
    if not second or not count or not created or created[0] > created[-1]:
        return page
    last = _SKIP.sub(str(max(0, int(count) - len(created))), second)
    return (reader.get(last) if last != second else {}) or page


def _entries(page: Document) -> Iterator[Document]:
    for entry in mappings(page.get("Members")):
        severity = str(entry.get("Severity")).lower()
        texts = (_text(entry.get(name), _MAX_MESSAGE_CHARACTERS) for name in ("Message", "MessageId"))
        message = next(filter(None, texts), None)
        if severity in STATES[1:] and message:
            yield drop_unknown(created=_text(entry.get("Created"), 40), severity=severity, message=message)


def _firmware(component: str, resource: Document, *names: str) -> Document:
    return drop_unknown(
        component=component,
        name=_text(resource.get("Id")) or _text(resource.get("MemberId")) or _text(resource.get("Name")) or component,
        model=_text(resource.get("Model")) or _text(resource.get("Name")),
        vendor=_text(resource.get("Manufacturer")),
        serial=_text(resource.get("SerialNumber")),
        version=next((version for name in names if (version := _text(resource.get(name)))), None),
    )


def _controllers(storages: list[Document]) -> Iterable[Document]:
    return (controller for storage in storages for controller in mappings(storage.get("StorageControllers")))


def _adapters(reader: Reader, chassis: list[Document]) -> Iterator[Document]:
    for enclosure in chassis:
        for adapter in reader.members(enclosure.get("NetworkAdapters"), _MAX_PARTS):
            controllers = mappings(adapter.get("Controllers"))
            versions = (_text(controller.get("FirmwarePackageVersion")) for controller in controllers)
            for version in dict.fromkeys(filter(None, versions)):
                yield _firmware("nic", adapter) | {"version": version}


def _other_firmware(reader: Reader, system: System, known_components: set[str]) -> Iterator[Document]:
    """Yield the installed firmware of all components but these; their own resources say more."""
    service = reader.get(mapping(system.root.json if system.root else {}).get("UpdateService"))
    for entry in reader.members(service.get("FirmwareInventory"), _MAX_FIRMWARE):
        related = " ".join(str(link.get("@odata.id")).lower() + "/" for link in mappings(entry.get("RelatedItem")))
        component = next((kind for part, kind in _RELATED if part in related), "other")
        # Dell also lists what was installed before, and what could be.
        if component not in known_components and not str(entry.get("Id")).startswith(("Previous", "Available")):
            firmware = _firmware(component, entry, "Version")
            if "version" in firmware:
                yield firmware
