"""A node's capabilities, in both forms in which operators write them.

Source: the Bare Metal API reference: ``properties.capabilities`` is a text ``a:b,c:d`` or an object.
"""

from __future__ import annotations

from ferroscope.domain.model import Node


def capabilities(node: Node) -> dict[str, str]:
    """Return the capabilities by name; what is no capability is left out."""
    stored = node.properties.get("capabilities")
    if isinstance(stored, dict):
        return {str(name): str(value) for name, value in stored.items()}
    if not isinstance(stored, str):
        return {}
    pairs = (pair.partition(":") for pair in stored.split(","))
    return {name.strip(): value.strip() for name, colon, value in pairs if colon}


def wanted_boot_mode(node: Node) -> str | None:
    """Return ``uefi`` or ``bios`` where the node's capabilities ask for one."""
    mode = capabilities(node).get("boot_mode")
    return mode if mode in ("uefi", "bios") else None
