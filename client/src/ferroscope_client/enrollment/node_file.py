"""Files with nodes, as ``node import`` reads and ``node export`` writes them: CSV, YAML or JSON. Pure.

YAML and JSON have the format of the Bare Metal service's own clients (``baremetal create``): a list of nodes, or an
object with ``nodes``; each node has the fields of the API and ``ports``. In CSV each column is a field, or
``FIELD/KEY`` for a key of a document; ``labels`` holds all labels, as ``rack=r1,spare``, and ``macs`` the MAC addresses
of the ports. ``bmc_address``, ``bmc_username`` and ``bmc_password`` stand for the properties of the driver with these
endings.
"""

from __future__ import annotations

import csv
import difflib
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec

from ferroscope_client.core import json_safety, labels, mac_addresses, values
from ferroscope_client.core.node import SETTABLE
from ferroscope_client.core.values import many
from ferroscope_client.enrollment.printed import json_text, yaml_text

Json = Any
FORMATS: Final = ("csv", "yaml", "json")
BY_SUFFIX: Final = {"csv": "csv", "tsv": "csv", "yaml": "yaml", "yml": "yaml", "json": "json"}
DOCUMENTS: Final = tuple(name for name, field in SETTABLE.items() if field.plain not in (str, bool))
BMC: Final = ("bmc_address", "bmc_username", "bmc_password")

_FIELDS: Final = ("uuid", *SETTABLE)
_BOOLEANS: Final = frozenset(name for name, field in SETTABLE.items() if field.plain is bool)
_MACS: Final = ("macs", "ports")
_LABELS: Final = "labels"
_TRUE: Final = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_MOST_ERRORS: Final = 100
_MAX_ERRORS_OF_A_ROW: Final = 10
# A cell that a spreadsheet reads as a formula, and how we write such a cell.
_FORMULA: Final = re.compile(r"'*[=+@\t\r\n-]")
_NUMBER: Final = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?")
# Levels of a document in YAML: a node of the API has far fewer.
_MAX_DEPTH: Final = 50
# A node has some KB; the limit catches a wrong file.
MAX_FILE_BYTES: Final = 64 * 1024 * 1024


class NodeRow(msgspec.Struct):
    """``where``: the line or the position in the file. ``fields``: those of the API. ``bmc``: by the names of BMC.

    ``errors``: why the row is not imported. ``steps_aside``: the node lets others use its BMC until this row moves it.
    """

    where: str
    fields: dict[str, Any]
    macs: list[str]
    bmc: dict[str, str]
    errors: list[str] = []
    steps_aside: bool = False

    @property
    def label(self) -> str:
        """Return how the file identifies the node: by a name, a UUID or a MAC address; "" if it does not."""
        return str(self.fields.get("name") or self.fields.get("uuid") or next(iter(self.macs), ""))

    @property
    def problem(self) -> str:
        """Return why the row is not imported, "" if it may be."""
        more = len(self.errors) - _MAX_ERRORS_OF_A_ROW
        return "; ".join(self.errors[:_MAX_ERRORS_OF_A_ROW]) + (f"; and {more} more" if more > 0 else "")


class NodeFileError(ValueError):
    """Why no row of the file can be read, one line each."""

    def __init__(self, errors: Sequence[str]) -> None:
        self.errors = list(errors)
        more = len(self.errors) - _MOST_ERRORS
        super().__init__("\n".join([*self.errors[:_MOST_ERRORS], *([f"and {more} more"] if more > 0 else [])]))


def read(text: str, fmt: str, *, aliases: bool = True, unknown_as_labels: bool = False) -> list[NodeRow]:
    """Return the rows of a file, each with its errors.

    ``NodeFileError`` if the rows cannot be separated. ``aliases`` as in ``decode_document``. ``unknown_as_labels``: a
    column of CSV that is no field becomes a label of this name.
    """
    rows = (
        _from_csv(text.lstrip("\ufeff"), unknown_as_labels)
        if fmt == "csv"
        else _from_nodes(decode_document(text, fmt, aliases=aliases))
    )
    for row in rows:
        _check(row, _NUMBER_ADVICE[fmt])
    refuse_repetitions(rows, _list_identifiers)
    return rows


def _from_csv(text: str, unknown_as_labels: bool) -> list[NodeRow]:
    said = _SAID.match(text)
    delimiter = said[1] if said else delimiter_of(text)
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        if said:
            next(lines)
        filled = filter(None, map(_cells, lines))
        columns = next(filled, None)
        if columns is None:
            raise NodeFileError(["the file is empty: the first line must name the columns, such as name,driver,macs"])
        if unknown_as_labels:
            columns = [name if _is_column(name) else _as_label(name) for name in columns]
        unknown = [name for name in columns if name and not _is_column(name)]
        # The search for similar names is expensive, so columns that the message does not name are left out.
        errors = [_unknown_name("column", name) for name in unknown[:_MOST_ERRORS]]
        errors += [f"unknown column {name!r}" for name in unknown[_MOST_ERRORS:]]
        errors += [
            f"column {name} occurs twice"
            for name in sorted(name for name, times in Counter(columns).items() if name and times > 1)
        ]
        if errors:
            raise NodeFileError(errors)
        rows = []
        for cells in filled:
            row = NodeRow(f"line {lines.line_num}", {}, [], {})
            rows.append(row)
            if len(cells) > len(columns):
                # Those at the end may be empty because an unquoted cell before them became two.
                row.errors.append(
                    f"{many(len(cells), 'cell')}, but {many(len(columns), 'column')}; "
                    f"quote cells with {delimiter!r}, and take those at the end away"
                )
                continue
            named = list(zip(columns, cells, strict=False))
            row.errors += [
                f"{cell[:80]!r} is in column {number}, which has no name; quote cells with {delimiter!r}"
                for number, (name, cell) in enumerate(named, 1)
                if cell and not name
            ]
            _take_cells(row, {name: _read_cell(name, cell) for name, cell in named if name and cell})
    except csv.Error as exc:
        raise NodeFileError([f"line {lines.line_num}: invalid CSV: {exc}"]) from None
    return rows


def _cells(line: list[str]) -> list[str]:
    """Return the cells without blanks around them; none of a comment, or if all are empty."""
    cells = [cell.strip() for cell in line]
    return cells if any(cells) and not cells[0].startswith("#") else []


# The first line that tells Excel the separator.
_SAID: Final = re.compile('"?sep=([^\\s"])"?[\r\n]', re.IGNORECASE)


def header_of(text: str) -> str:
    """Return the first line that is neither empty nor a comment."""
    return next((line for line in io.StringIO(text) if line.strip() and not line.lstrip().startswith("#")), "")


def delimiter_of(text: str) -> str:
    """Return what separates the columns: spreadsheets of many countries write semicolons. No column's name has any."""
    return max(",;\t|", key=header_of(text).count)


def _take_cells(row: NodeRow, cells: dict[str, str]) -> None:
    for name, cell in cells.items():
        field, _, key = name.partition("/")
        if name in _MACS:
            for part in _BETWEEN_MACS.split(cell):  # blanks may also separate the digits of one
                row.macs += [part] if mac_addresses.written_mac(part) else part.split()
        elif name in BMC:
            row.bmc[name] = cell
        elif name == _LABELS:
            row.fields.setdefault(name, {}).update(_read_labels(row, cell))
        elif key:
            row.fields.setdefault(field, {})[key] = cell
        elif field in _BOOLEANS:
            if cell.lower() not in _TRUE:
                row.errors.append(f"{name}: invalid value {cell[:80]!r}: expected true or false")
            row.fields[field] = _TRUE.get(cell.lower(), False)
        else:
            row.fields[field] = cell


_BETWEEN_MACS: Final = re.compile(r"[\n,;|/]")


def _read_labels(row: NodeRow, cell: str) -> dict[str, str]:
    try:
        return dict(labels.pair(text.strip()) for text in cell.split(","))
    except labels.LabelError as exc:
        row.errors.append(f"labels: {exc}; expected, for example, rack=r1,spare")
        return {}


def _as_label(name: str) -> str:
    """Return the column of the label that has this name; the name itself if no label can have it."""
    key = "-".join(name.lower().split())
    return f"{_LABELS}/{key}" if labels.is_key(key) else name


def _is_column(name: str) -> bool:
    field, _, key = name.partition("/")
    return name in (*_MACS, *BMC, _LABELS) or (
        field in DOCUMENTS if key else field in _FIELDS and field not in DOCUMENTS
    )


# By letters alone, mac_address would be most similar to bmc_address.
_OF_MACS: Final = re.compile("(?<![a-z])macs?(?![a-z])")


def _unknown_name(noun: str, name: str) -> str:
    if name in DOCUMENTS and name != _LABELS:
        return f"{noun} {name} needs a key, such as {name}/KEY"
    names = [*_FIELDS, *_MACS, *BMC, *(f"{document}/" for document in DOCUMENTS)]
    close = ["macs"] if _OF_MACS.search(name.lower()) else difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {close[0]}?" if close else f"use {_as_label(name)} or extra/{name}" if name else ""
    if noun != "column" and not close:
        hint = ""
    return f"unknown {noun} {name!r}" + (f"; {hint}" if hint else "")


def decode_document(text: str, fmt: str, *, aliases: bool = True) -> Json:
    """Return a document in YAML or JSON; ``NodeFileError``.

    Without ``aliases``, YAML may not refer to other places of the text: a few lines could become gigabytes. Nor may it
    be nested deeply: the time that libyaml takes for a bracket grows with their number around it.
    """
    import yaml

    if fmt == "yaml" and not aliases:
        _check_events(text)
    try:
        if fmt == "json":
            return json_safety.decode_own(text)
        return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506  # both are safe
    except (ValueError, RecursionError, yaml.YAMLError) as exc:
        raise _invalid(fmt, exc) from None


def _check_events(text: str) -> None:
    import yaml

    depth = 0
    try:
        for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if isinstance(event, yaml.AliasEvent) or depth > _MAX_DEPTH:
                where = "" if event.start_mark is None else f"line {event.start_mark.line + 1}: "
                if depth > _MAX_DEPTH:
                    raise NodeFileError([f"{where}nested too deeply: at most {_MAX_DEPTH} levels are allowed"])
                anchor = getattr(event, "anchor", "")
                raise NodeFileError([f"{where}aliases (*{anchor}) are not allowed here; write the value itself"])
    except (ValueError, RecursionError, yaml.YAMLError) as exc:
        if isinstance(exc, NodeFileError):
            raise
        raise _invalid("yaml", exc) from None


def _invalid(fmt: str, exc: Exception) -> NodeFileError:
    return NodeFileError([f"invalid {fmt.upper()}: {' '.join(str(exc).split())[:300]}"])


def _from_nodes(document: Json) -> list[NodeRow]:
    if isinstance(document, dict) and document.keys() <= {"nodes"}:
        document = document.get("nodes")
    elif isinstance(document, dict):
        others = sorted(map(str, document.keys() - {"nodes"}))
        raise NodeFileError([f"only nodes can be imported, not {', '.join(others)}"])
    if not isinstance(document, list):
        raise NodeFileError(["expected a list of nodes, or an object with the key nodes"])
    rows = []
    for number, item in enumerate(document, 1):
        row = NodeRow(f"node {number}", {}, [], {})
        rows.append(row)
        if not isinstance(item, dict):
            row.errors.append("expected an object")
            continue
        for name, value in item.items():
            _take(row, str(name), value)
    return rows


def _take(row: NodeRow, name: str, value: Any) -> None:
    if name in _MACS:
        ports = value if isinstance(value, list) else [value]
        macs = [port.get("address") if isinstance(port, dict) else port for port in ports]
        extra = {key for port in ports if isinstance(port, dict) for key in port} - {"address"}
        if extra:
            row.errors.append(f"{name}: only the address of a port is imported, not {', '.join(sorted(extra))}")
        row.macs += [str(mac) for mac in macs]
    elif name in BMC:
        row.bmc[name] = str(value)
    elif name in DOCUMENTS and not isinstance(value, dict):
        row.errors.append(f"{name}: expected an object")
    elif name in _BOOLEANS and not isinstance(value, bool):
        row.errors.append(f"{name}: expected true or false")
    elif name in DOCUMENTS or name in _BOOLEANS:
        row.fields[name] = value
    elif name not in _FIELDS:
        row.errors.append(_unknown_name("field", name))
    elif isinstance(value, list | dict):
        row.errors.append(f"{name}: expected a text")
    elif value is not None:
        row.fields[name] = str(value)


# How a spreadsheet turns an address into a useless number, and how to prevent that.
_NUMBER_TEXT: Final = re.compile(r"[0-9.,]+(?:E[+-]?[0-9]+)?", re.IGNORECASE)
_NUMBER_ADVICE: Final = {
    "csv": "; a spreadsheet has made a number of it: format the column as text",
    "yaml": "; in YAML, quote it",
    "json": "",
}


def _check(row: NodeRow, mangled: str) -> None:
    macs = [mac_addresses.identifying_mac(mac_addresses.written_mac(mac)) for mac in row.macs]
    row.errors += [
        f"{'no NIC has the' if mac_addresses.written_mac(text) else 'invalid'} MAC address {text[:80]!r}"
        + (mangled if _NUMBER_TEXT.fullmatch(text) else "")
        for text, mac in zip(row.macs, macs, strict=True)
        if mac is None
    ]
    if _LABELS in row.fields:
        row.fields[_LABELS] = {str(key): text(value) for key, value in row.fields[_LABELS].items()}
        if wrong := labels.problem(row.fields[_LABELS]):
            row.errors.append(f"labels {wrong}")
    row.macs = list(dict.fromkeys(mac for mac in macs if mac is not None))
    if not row.label and not row.errors:
        row.errors.append("a name, a uuid or a MAC address is required to identify the node")


def refuse_repetitions(rows: Iterable[NodeRow], list_keys: Callable[[NodeRow], Iterable[str]]) -> None:
    """Add an error to all rows with a common key: it is unclear which one is mistyped."""
    rows_by_key: dict[str, list[NodeRow]] = {}
    for row in rows:
        for key in list_keys(row):
            rows_by_key.setdefault(key, []).append(row)
    for key, same in rows_by_key.items():
        for number, row in enumerate(same if len(same) > 1 else ()):
            row.errors.append(f"the {key[:80]} is also in {same[0 if number else 1].where}")


def _list_identifiers(row: NodeRow) -> list[str]:
    identifiers = [f"{name} {str(row.fields[name]).lower()}" for name in ("name", "uuid") if row.fields.get(name)]
    return identifiers + [f"MAC address {mac}" for mac in row.macs]


def format_nodes(nodes: Sequence[Json], macs: Callable[[str], list[str]], fmt: str) -> str:
    """Return nodes of the API in a format, without what is empty, and without secrets, which are masked."""
    entries = [_entry(node, macs(node["uuid"])) for node in nodes]
    if fmt == "csv":
        return _as_csv(entries)
    if fmt == "json":
        return json_text({"nodes": entries}) + "\n"
    return yaml_text({"nodes": entries})


def _entry(node: Json, macs: list[str]) -> Json:
    entry: Json = {"name": node["name"], "uuid": node["uuid"]}
    for name, field in SETTABLE.items():
        value = node.get(name)
        if field.masked and value:
            value = {key: item for key, item in value.items() if values.MASK not in json.dumps(item)}
        if value not in (None, "", {}, False):
            entry[name] = value
    if macs:
        entry["ports"] = [{"address": mac} for mac in macs]
    return {name: value for name, value in entry.items() if value is not None}


def _as_csv(entries: list[Json]) -> str:
    rows = []
    for entry in entries:
        row = {name: value for name, value in entry.items() if name not in (*DOCUMENTS, "ports")}
        if _LABELS in entry:
            row[_LABELS] = labels.format_labels(entry[_LABELS])
        for name in (document for document in DOCUMENTS if document != _LABELS):
            row |= {values.clean(f"{name}/{key}"): value for key, value in entry.get(name, {}).items()}
        row["macs"] = " ".join(port["address"] for port in entry.get("ports", ()))
        rows.append({name: _written_cell(text(value)) for name, value in row.items()})
    columns = list(dict.fromkeys(name for row in rows for name in row)) or ["name"]
    stream = io.StringIO()
    writer = csv.DictWriter(stream, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()


def _written_cell(cell: str) -> str:
    """Return a cell that no spreadsheet reads as a formula, and from which ``_read_cell`` returns the cleaned value."""
    cleaned = values.clean(cell)
    return f"'{cleaned}" if _FORMULA.match(cleaned) and not _NUMBER.fullmatch(cleaned) else cleaned


def _read_cell(name: str, cell: str) -> str:
    # Passwords are never written, so one in that form is meant literally.
    is_written = cell.startswith("'") and _FORMULA.match(cell) and not name.endswith("password")
    return cell[1:] if is_written else cell


def text(value: Any) -> str:
    """Return a value as a cell: a text unchanged, everything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
