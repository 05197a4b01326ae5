"""References to secrets: loads the sources; resolves ``secret://SOURCE/PATH`` in bounded time, with a short cache."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import entry_points
from typing import Any, Final

import msgspec

from ferroscope.config.plugins import Plugins
from ferroscope.contracts.errors import BmcError, SecretKeyError
from ferroscope.contracts.plugins import RESOLVE_SECONDS, SecretOptions, SecretSource, SecretSourceError
from ferroscope.core.model import Document, Node
from ferroscope.core.secrets import ENCRYPTED, Path, holds_concealed, is_concealed, replace_values
from ferroscope.secrets.keys import DecryptionError, KeyRing
from ferroscope_client.core.passwords import REFERENCE
from ferroscope_client.core.reasons import Reason

GROUP: Final = "ferroscope.secrets"
# A resolved secret serves the calls of one step. A changed secret takes effect half a minute later.
KEEP_SECONDS: Final = 30.0
_MAX_SECRET_CHARACTERS: Final = 64 * 1024
_MAX_CACHED_SECRETS: Final = 4096
# Calls at a time; a source that hangs keeps its threads, but no more than these.
_MAX_CALLS: Final = 32


def load_sources(names: Iterable[str], options: SecretOptions) -> dict[str, SecretSource]:
    """Return the sources with these names; ``PluginError`` if one cannot be loaded."""
    plugins = Plugins("source", "[secrets] sources", entry_points(group=GROUP))
    return {name: plugins.build(name, options, _lacks) for name in dict.fromkeys(names)}


def _lacks(source: SecretSource) -> str:
    return "" if callable(getattr(source, "resolve", None)) else "the method resolve"


class Resolver:
    """Thread-safe. ``keep``: seconds for which a resolved secret is kept."""

    def __init__(
        self,
        sources: Mapping[str, SecretSource],
        *,
        clock: Callable[[], float] = time.monotonic,
        timeout: float = RESOLVE_SECONDS,
        keep: float = KEEP_SECONDS,
    ) -> None:
        self._sources = sources
        self._clock = clock
        self._timeout = timeout
        self._keep = keep
        self._cache: dict[str, tuple[float, str]] = {}
        self._places = threading.BoundedSemaphore(_MAX_CALLS)

    def resolve(self, reference: str) -> str:
        """Return the secret; ``SecretSourceError``."""
        name, _, path = reference.removeprefix(REFERENCE).partition("/")
        source = self._sources.get(name)
        if source is None:
            enabled = ", ".join(sorted(self._sources)) or "none"
            raise SecretSourceError(f"the source {name[:64]!r} is not in [secrets] sources (enabled: {enabled})")
        now = self._clock()
        until, value = self._cache.get(reference, (now, ""))
        if until > now:
            return value
        try:
            value = self._call(lambda: source.resolve(path))
        except SecretSourceError as exc:
            # The secret is being replaced: a file may be missing, empty or unreadable for a moment.
            exc.transient = exc.transient or reference in self._cache
            raise
        if len(self._cache) >= _MAX_CACHED_SECRETS:
            self._cache = {}
        self._cache[reference] = now + self._keep, value
        return value

    def _call(self, call: Callable[[], str]) -> str:
        """Call a source in a thread of its own: a source that hangs must not hold a worker for longer than that."""
        answer: list[str | Exception] = []

        def run() -> None:
            try:
                answer.append(call())
            except Exception as exc:  # noqa: BLE001  # code of another package; reported below
                answer.append(exc)
            finally:
                self._places.release()

        if not self._places.acquire(timeout=self._timeout):
            raise SecretSourceError("too many calls of secret sources are unanswered", transient=True)
        thread = threading.Thread(target=run, name="secret-source", daemon=True)
        thread.start()
        thread.join(self._timeout)
        if not answer:
            raise SecretSourceError(f"its source did not answer within {self._timeout:g} s", transient=True)
        value = answer[0]
        if isinstance(value, SecretSourceError):
            raise value
        if isinstance(value, Exception):  # its message may contain anything
            raise SecretSourceError(f"its source raised {type(value).__name__}", transient=True)
        if not isinstance(value, str) or not value or len(value) > _MAX_SECRET_CHARACTERS:
            raise SecretSourceError(f"its source did not return a text of 1 to {_MAX_SECRET_CHARACTERS} characters")
        return value


_FIELD = "driver_info"


class SecretReader:
    """Thread-safe. ``resolver`` resolves references."""

    def __init__(self, keys: KeyRing | None = None, resolver: Resolver | None = None) -> None:
        self._keys = keys or KeyRing()
        self._resolver = resolver or Resolver({})

    def reveal(self, node: Node) -> Node:
        """Return the node with all secrets of ``driver_info`` in plain text; ``BmcError`` (permanent) if one cannot be
        decrypted. The caller must not store it."""
        info = self.driver_info(node)
        return node if info is node.driver_info else msgspec.structs.replace(node, driver_info=info)

    def driver_info(self, node: Node) -> Document:
        """Return ``driver_info`` with all secrets in plain text; ``BmcError`` as above."""
        if not holds_concealed(node.driver_info):
            return node.driver_info

        def reveal(path: Path, value: Any) -> Any:
            if isinstance(value, str):
                return self._resolve("/".join((_FIELD, *path)), value)
            try:
                return self._keys.decrypt(value[ENCRYPTED], node.uuid, (_FIELD, *path))
            except (SecretKeyError, DecryptionError) as exc:
                name = "/".join((_FIELD, *path))
                raise BmcError(f"cannot decrypt {name}: {exc}", transient=False, reason=_reason(exc)) from None

        return replace_values(node.driver_info, is_concealed, reveal)

    def _resolve(self, name: str, reference: str) -> str:
        try:
            return self._resolver.resolve(reference)
        except SecretSourceError as exc:
            message = f"cannot resolve {reference[:255]} in {name}: {exc}"
            raise BmcError(message, transient=exc.transient, reason=Reason.REFERENCE_UNRESOLVED) from None


def _reason(exc: Exception) -> Reason:
    return Reason.ENCRYPTION_KEY_MISSING if isinstance(exc, SecretKeyError) else Reason.DECRYPTION_FAILED
