"""Exporters: the formats in which ``ferroscope export FORMAT`` writes the fleet.

An exporter is a class of an installed package, found by the entry point of its name, the FORMAT, in the group
``ferroscope.exporters``, and called with ``ExportOptions``. Those of this project are found in the same way. A
``ValueError`` of the class says which parameter is wrong.

* Nodes have the form in which the API shows them to the caller: fields that it may not see are absent or replaced, and
  secrets are masked.
* Values that machines report about themselves, such as everything in ``hardware``, are hostile input: an exporter must
  make sure that no reader of its format takes them for formulas, templates or code, and that no control character
  reaches a terminal: ``core.values`` has ``clean``, ``clean_json`` and ``spreadsheet_cell``.
* Nodes arrive page by page while the exporter writes. It should keep no more of each than it needs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import BinaryIO, Protocol

import msgspec


class ExportError(Exception):
    """The export is not possible; ``advice`` says what to do."""

    def __init__(self, message: str, advice: str = "") -> None:
        self.advice = advice
        super().__init__(message)


class ExportOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What an exporter is called with; ``parameters`` are those of ``--parameter NAME=VALUE``."""

    parameters: Mapping[str, str] = {}

    def only(self, **defaults: str) -> dict[str, str]:
        """Return the parameters with these names, or their defaults; ``ValueError`` for others."""
        unknown = sorted(self.parameters.keys() - defaults.keys())
        if unknown:
            known = ", ".join(defaults) or "none"
            raise ValueError(f"unknown parameter {unknown[0]!r}; its parameters: {known}")
        return {**defaults, **self.parameters}


class Exporter(Protocol):
    """Writes nodes in one format."""

    @property
    def fields(self) -> Collection[str]:
        """The fields of the API that the nodes shall have; ``uuid`` and ``name`` are always there."""

    def write(self, nodes: Iterable[Mapping[str, object]], output: BinaryIO) -> None:
        """Write all nodes to ``output``, which cannot seek; ``ExportError``."""
