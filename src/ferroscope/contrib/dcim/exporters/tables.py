"""``csv``, ``json`` and ``parquet``: one row a machine, with fields of its node and the summary of its hardware.

Sizes are in bytes. Without permission to see inventories, the columns of the hardware are empty.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from itertools import islice
from typing import Any, BinaryIO, Final, Literal

import msgspec

from ferroscope.config.errors import extra
from ferroscope.contracts.plugins import ExportError, ExportOptions
from ferroscope_client.core import labels, values

_ROWS_PER_BATCH: Final = 1000


class ExportColumn(msgspec.Struct, frozen=True):
    """A column and where its value is: in ``field`` of the node or, if ``hardware``, of its hardware."""

    name: str
    field: str
    kind: Literal["text", "integer", "boolean", "time", "labels"] = "text"
    hardware: bool = False

    def of(self, node: Mapping[str, Any]) -> Any:
        """Return the value, None if it is unknown."""
        return ((node.get("hardware") or {}) if self.hardware else node).get(self.field)


def _part(field: str, name: str = "", *, counted: bool = True) -> ExportColumn:
    return ExportColumn(name or field, field, "integer" if counted else "text", hardware=True)


COLUMNS: Final = (
    ExportColumn("name", "name"),
    ExportColumn("uuid", "uuid"),
    ExportColumn("state", "provision_state"),
    ExportColumn("power", "power_state"),
    ExportColumn("maintenance", "maintenance", "boolean"),
    ExportColumn("maintenance_reason", "maintenance_reason"),
    ExportColumn("driver", "driver"),
    ExportColumn("owner", "owner"),
    ExportColumn("resource_class", "resource_class"),
    ExportColumn("description", "description"),
    ExportColumn("labels", "labels", "labels"),
    *(_part(name, counted=False) for name in ("vendor", "product", "serial", "firmware", "cpu", "arch")),
    _part("cpus"),
    _part("memory", "memory_bytes"),
    _part("storage", "storage_bytes"),
    *(_part(name) for name in ("disks", "nics", "dimms", "gpus")),
    ExportColumn("created", "created_at", "time"),
    ExportColumn("inspected", "inspection_finished_at", "time"),
    ExportColumn("error", "last_error"),
)

_Rows = Iterable[Mapping[str, Any]]


class _ExportTable:
    """Shared by the three formats: the columns; they have no parameters."""

    fields: Final = tuple(dict.fromkeys("hardware" if column.hardware else column.field for column in COLUMNS))

    def __init__(self, options: ExportOptions) -> None:
        options.only()


class CsvExporter(_ExportTable):
    """Comma-separated values with a header, in UTF-8, of which no cell is a formula."""

    def write(self, nodes: _Rows, output: BinaryIO) -> None:
        """See ``contracts.plugins.Exporter``."""
        stream = io.TextIOWrapper(output, "utf-8", errors="replace", newline="", write_through=True)
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow([column.name for column in COLUMNS])
        writer.writerows([_cell(column, node) for column in COLUMNS] for node in nodes)
        stream.detach()  # or it would close the output


def _cell(column: ExportColumn, node: Mapping[str, Any]) -> Any:
    value = column.of(node)
    if isinstance(value, bool):
        return str(value).lower()
    return values.spreadsheet_cell(labels.format_labels(value) if isinstance(value, dict) else value)


class JsonExporter(_ExportTable):
    """A list of objects, one line each, whose keys are the columns."""

    def write(self, nodes: _Rows, output: BinaryIO) -> None:
        """See ``contracts.plugins.Exporter``."""
        write_json_list(({column.name: column.of(node) for column in COLUMNS} for node in nodes), output)


def json_line(document: Any) -> bytes:
    """Return the document as JSON, without control and invisible characters."""
    return values.clean_json(msgspec.json.encode(document).decode()).encode()


def write_json_list(objects: Iterable[Any], output: BinaryIO) -> None:
    """Write a list of JSON objects, one line each, as they come."""
    before = b"[\n"
    for document in objects:
        output.write(before + json_line(document))
        before = b",\n"
    output.write(b"[]\n" if before == b"[\n" else b"\n]\n")


class ParquetExporter(_ExportTable):
    """Apache Parquet, by pyarrow, which is an extra."""

    def write(self, nodes: _Rows, output: BinaryIO) -> None:
        """See ``contracts.plugins.Exporter``."""
        try:
            import pyarrow
            import pyarrow.parquet
        except ModuleNotFoundError as exc:
            missing = f"the format parquet needs the Python package {exc.name}"
            raise ExportError(missing, extra("all")) from exc
        kinds = {
            "text": pyarrow.string(),
            "integer": pyarrow.int64(),
            "boolean": pyarrow.bool_(),
            "time": pyarrow.timestamp("us", tz="UTC"),
            "labels": pyarrow.map_(pyarrow.string(), pyarrow.string()),
        }
        schema = pyarrow.schema([(column.name, kinds[column.kind]) for column in COLUMNS])
        with pyarrow.parquet.ParquetWriter(output, schema) as writer:
            for batch in _batches(nodes):
                rows = {column.name: [_convert(column, node) for node in batch] for column in COLUMNS}
                writer.write_table(pyarrow.table(rows, schema))


def _batches(nodes: _Rows) -> Iterator[list[Mapping[str, Any]]]:
    following = iter(nodes)
    while batch := list(islice(following, _ROWS_PER_BATCH)):
        yield batch


_CONVERTED: Final[dict[str, Callable[[Any], Any]]] = {
    "time": datetime.fromisoformat,
    "labels": lambda mapping: [(key, values.clean(value)) for key, value in mapping.items()],
    "text": values.clean,
}


def _convert(column: ExportColumn, node: Mapping[str, Any]) -> Any:
    value = column.of(node)
    return _CONVERTED.get(column.kind, lambda same: same)(value) if value is not None else None
