"""The list ``[inspector] hooks`` as operators write it, and what each name in it means. Pure.

``$default_hooks`` stands for the default list; ``?name`` is optional: its failure is a warning.
Names are entry point names with dashes; underscores, as older configurations have them, still work,
and so do ironic-inspector's names of what is called otherwise here.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Final

import msgspec

_DEFAULTS: Final = frozenset({"$default_hooks", "${default_hooks}"})
_OPTIONAL: Final = "?"

RENAMED: Final = {
    "lldp_basic": "parse-lldp",
    "physnet_cidr_map": "physical-network",
    "root_disk_selection": "root-device",
}


class Wanted(msgspec.Struct, frozen=True):
    """One item of the list; its failure does not fail the node where it is ``optional``."""

    name: str
    optional: bool = False


def expand(hooks: str | Sequence[str], default_hooks: Sequence[str]) -> tuple[str, ...]:
    """Return the list with ``$default_hooks`` replaced: ``"my-hook,$default_hooks"`` -> its names.

    ``hooks`` is the option's text or its items; empty items are dropped, ``?`` marks are kept.
    """
    items = hooks.split(",") if isinstance(hooks, str) else hooks
    names: list[str] = []
    for item in items:
        name = item.strip()
        if name in _DEFAULTS:
            names.extend(default_hooks)
        elif name:
            names.append(name)
    return tuple(names)


def parse(item: str) -> Wanted:
    """Return what one item of an expanded list asks for."""
    name = item.strip()
    if name.startswith(_OPTIONAL):
        return Wanted(name.removeprefix(_OPTIONAL).strip(), optional=True)
    return Wanted(name)


def resolve(name: str, available: Container[str]) -> str | None:
    """Return the available hook that ``name`` means: itself, its spelling with dashes, or its new name; else None."""
    spellings = (name, name.replace("_", "-"), RENAMED.get(name, name))
    return next((spelling for spelling in spellings if spelling in available), None)
