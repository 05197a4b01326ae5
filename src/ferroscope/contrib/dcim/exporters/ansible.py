"""``ansible``: a dynamic inventory for Ansible, in the format of inventory scripts.

Source: the Ansible documentation, "Developing dynamic inventory". Ansible evaluates templates in variables on the host
that runs it. Machines can choose some of these values, so each text that could be a template is marked as unsafe, which
makes Ansible take it literally.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, BinaryIO, Final

from ferroscope.contracts.plugins import ExportOptions
from ferroscope.contrib.dcim.exporters.tables import json_line

_VARIABLES: Final = (
    "uuid", "name", "provision_state", "power_state", "maintenance", "driver", "owner", "resource_class", "description",
    "labels", "hardware",
)  # fmt: skip
_UNFIT: Final = re.compile(r"[^A-Za-z0-9_]+", re.ASCII)


class AnsibleExporter:
    """Groups by state, resource class and label; the fields of a node are variables ``ferroscope_...`` of its host."""

    fields: Final = _VARIABLES

    def __init__(self, options: ExportOptions) -> None:
        options.only()

    def write(self, nodes: Iterable[Mapping[str, Any]], output: BinaryIO) -> None:
        """See ``contracts.plugins.Exporter``. The variables are written at once; only names are kept."""
        groups: defaultdict[str, list[str]] = defaultdict(list)
        before = b'{"_meta": {"hostvars": {\n'
        for node in nodes:
            host = node["name"] or node["uuid"]
            output.write(before + json_line(host) + b": " + json_line(_variables(node)))
            before = b",\n"
            groups["ferroscope"].append(host)
            for group in _groups(node):
                groups[group].append(host)
        output.write(before if not groups else b"")
        output.write(b"\n}}")
        for group, hosts in sorted(groups.items()):
            output.write(b",\n" + json_line(group) + b": " + json_line({"hosts": hosts}))
        output.write(b"\n}\n")


def _variables(node: Mapping[str, Any]) -> dict[str, Any]:
    return {f"ferroscope_{name}": _literal(node.get(name)) for name in _VARIABLES}


def _literal(value: Any) -> Any:
    """Return the value with all texts that could be templates marked."""
    if isinstance(value, dict):
        return {key: _literal(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_literal(item) for item in value]
    return {"__ansible_unsafe": value} if isinstance(value, str) and "{" in value else value


def _groups(node: Mapping[str, Any]) -> Iterator[str]:
    yield _group("state", node["provision_state"])
    if node.get("maintenance"):
        yield "maintenance"
    if node.get("resource_class"):
        yield _group("class", node["resource_class"])
    for key, value in (node.get("labels") or {}).items():
        yield _group("label", key)
        if value:
            yield _group("label", key, value)


def _group(*words: str) -> str:
    """Return the name of a group, which must be that of a variable."""
    return _UNFIT.sub("_", "_".join(words))
