"""What other packages can add: commands, exporters, sources of secrets."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping
from typing import BinaryIO, Final, Protocol

import msgspec

from ferroscope.contracts.store import StopFlag


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
    """Writes nodes in the format of ``ferroscope export FORMAT``.

    It is a class of an installed package, found by the entry point of its name, the FORMAT, in the group
    ``ferroscope.exporters``, and called with ``ExportOptions``. A ``ValueError`` says which parameter is wrong.

    * Nodes have the form in which the API shows them to the caller: fields that it may not see are absent or replaced,
      and secrets are masked.
    * Values that machines report about themselves, such as everything in ``hardware``, are hostile input. No reader of
      the format may take them for formulas, templates or code, and no control character may reach a terminal:
      ``core.values`` has ``clean``, ``clean_json`` and ``spreadsheet_cell``.
    * Nodes arrive page by page while the exporter writes. It should keep no more of each than it needs.
    """

    @property
    def fields(self) -> Collection[str]:
        """The fields of the API that the nodes shall have; ``uuid`` and ``name`` are always there."""

    def write(self, nodes: Iterable[Mapping[str, object]], output: BinaryIO) -> None:
        """Write all nodes to ``output``, which cannot seek; ``ExportError``."""


class SecretSourceError(Exception):
    """The secret cannot be resolved. ``transient``: whether a retry may succeed. The message must not contain it."""

    def __init__(self, message: str, *, transient: bool = False) -> None:
        self.transient = transient
        super().__init__(message)


# Half of a BMC command's default timeout: a source that hangs fails the call of a BMC in time for another attempt.
RESOLVE_SECONDS: Final = 5.0


class SecretOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a source is called with; ``file_directory`` is that of ``[secrets]``.

    ``timeout``: seconds for a call; after that, its result is discarded. ``stop`` is set when the process is stopping.
    ``env_prefix``: the source ``env`` reads no variable without it, so that the service's own secrets stay its own.
    """

    timeout: float = RESOLVE_SECONDS
    file_directory: str = ""
    env_prefix: str = "FERROSCOPE_SECRET_"
    stop: StopFlag = msgspec.field(default_factory=threading.Event)


class SecretSource(Protocol):
    """Resolves the references with its name: ``secret://NAME/PATH`` in ``driver_info``.

    It is a class of an installed package, found by the entry point of its name in the group ``ferroscope.secrets``, and
    called with ``SecretOptions``. Only sources in ``[secrets] sources`` are loaded, when a worker starts.

    * Callers of the API choose PATH, and where the secret is sent. A source must only return what is meant for BMCs,
      and never what else the service can read.
    * A secret is resolved when a BMC is called, and kept in memory for 30 seconds.
    * One object serves all threads of a process.
    """

    def resolve(self, path: str) -> str:
        """Return the secret at ``path``, what follows ``secret://SOURCE/``; ``SecretSourceError``."""
