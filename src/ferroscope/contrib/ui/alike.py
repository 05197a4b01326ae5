"""Searches for all machines with a common value: the target of a click on the value."""

from __future__ import annotations

from typing import Any, Final

from ferroscope.hardware import parts
from ferroscope_client.core import labels
from ferroscope_client.hardware import names

# Fields with values that machines share, by kind of part; serial numbers and addresses are unique.
_COMMON: Final = {
    "node": {"vendor", "product", "firmware", "boot_mode"},
    "cpu": {"model"},
    "nic": {"vendor", "product", "driver", "switch"},
    "disk": {"vendor", "model"},
    "dimm": {"vendor", "model"},
    "gpu": {"vendor", "product"},
    "firmware": {"version"},
}


def term(field: str, value: Any, compare: str = "==") -> str:
    """Return the condition that a field has this value; "" if there is none, or no query can contain it."""
    mark = next((quote for quote in ("'", '"') if value and quote not in str(value)), "")
    return f"{field} {compare} {mark}{value}{mark}" if mark else ""


def narrow_search(q: str, term: str) -> str:
    """Return the search for machines that both find; "" if there is no condition."""
    return term if not term or q in ("", term) else f"({q}) and {term}"


def model(vendor: Any, product: Any) -> str:
    """Return the search for a model, without the vendor's internal numbers."""
    name = names.model(str(product)) if product else ""
    same = term("product", name)
    if same and name != str(product):
        same = f"({same} or {term('product', f'{name} (*', '~')})"
    if name and not same:
        return ""
    return " and ".join(filter(None, (term("vendor", vendor), same)))


def label(key: str, value: str) -> str:
    """Return the search for a label."""
    return term(f"label.{key}", value) or f"has label.{key}"


def labels_of(node: dict[str, Any], q: str = "") -> list[dict[str, str]]:
    """Return each label as text, with the search that finds the machines which have it too, among those of ``q``."""
    return [
        {"key": key, "text": labels.format_labels({key: value}), "q": narrow_search(q, label(key, value))}
        for key, value in sorted((node.get("labels") or {}).items())
    ]


def part(of: parts.Part, name: str) -> str:
    """Return the search for the value of a field of a part; "" if it is the machine's own."""
    if name not in _COMMON.get(of.kind, ()):
        return ""
    if of.kind == "node" and name == "product":
        return model(None, of.fields[name])
    if of.kind != "firmware":
        return term(name if of.kind == "node" else f"{of.kind}.{name}", of.fields[name])
    component, version = term("component", of.fields.get("component")), term("version", of.fields[name])
    return f"firmware[{component} and {version}]" if component and version else ""
