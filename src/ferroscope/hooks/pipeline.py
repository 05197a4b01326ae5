"""Runs the hooks on one inspection's data: ``preprocess`` of all, then ``__call__`` of all.

Errors in preprocess are collected and reported together; the first error in a call ends the run. An optional hook takes
effect completely or not at all, and its failure is a warning on the timeline. Nothing is committed here: the caller
discards its copies if ``HookError`` is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NoReturn

import msgspec
import structlog

from ferroscope.config.options import InspectorSettings
from ferroscope.contracts.errors import StoreError
from ferroscope.core.model import Document, Node, Port, Severity
from ferroscope.hooks.base import HookContext, HookError, HookTask, InspectionHook, PortChanges, ReadOnlyError
from ferroscope.hooks.helpers import printable
from ferroscope.hooks.loader import LoadedHook, check_order, load
from ferroscope_client.core.reasons import Reason
from ferroscope_client.core.values import many

# The JSON documents that hooks get: read-only for the inventory, plain copies for the rest.
#
# The read-only types are real dicts and lists, so reading and encoding cost nothing extra. They raise at the attempted
# change, so that the traceback points to the offending line.


_CONTAINERS: Final = frozenset({dict, list})


def read_only(document: Document) -> Document:
    """Return a read-only version of ``document``, at any depth."""
    if _CONTAINERS.isdisjoint(map(type, document.values())):  # most documents have no nested values
        return ReadOnlyDict(document)
    return ReadOnlyDict(
        {
            key: _freeze(value) if (kind := type(value)) is dict or kind is list else value
            for key, value in document.items()
        }
    )


def deep_copy(document: Document) -> Document:
    """Return a deep copy of ``document``."""
    return {
        key: _copy(value) if (kind := type(value)) is dict or kind is list else value for key, value in document.items()
    }


def _freeze(value: Any) -> Any:
    if type(value) is dict:
        return read_only(value)
    if _CONTAINERS.isdisjoint(map(type, value)):
        return ReadOnlyList(value)
    return ReadOnlyList([_freeze(item) if (kind := type(item)) is dict or kind is list else item for item in value])


def _copy(value: Any) -> Any:
    if type(value) is dict:
        return deep_copy(value)
    return [_copy(item) if (kind := type(item)) is dict or kind is list else item for item in value]


def _refuse(*_args: Any, **_kwargs: Any) -> NoReturn:
    raise ReadOnlyError("the inventory is read-only; write derived data to plugin_data")


class ReadOnlyDict(dict[str, Any]):
    """A dict that rejects every change; ``dict(it)`` and ``it.copy()`` are ordinary dicts."""

    __slots__ = ()
    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __copy__(self) -> Document:
        return dict(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Document:
        return {key: _thaw(value) for key, value in self.items()}


class ReadOnlyList(list[Any]):
    """A list that rejects every change; ``list(it)`` and ``it.copy()`` are ordinary lists."""

    __slots__ = ()
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = clear = extend = insert = pop = remove = reverse = sort = _refuse

    def __copy__(self) -> list[Any]:
        return list(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> list[Any]:
        return [_thaw(value) for value in self]


def _thaw(value: Any) -> Any:
    return value.__deepcopy__({}) if isinstance(value, ReadOnlyDict | ReadOnlyList) else value


# A hook's view of the task, and undoing an optional hook.
#
# The view exposes less than the worker's context: no store, no BMC, only the inspector's options. Timeline messages
# pass through it, which limits their length and escapes unprintable characters.

MAX_MESSAGE: Final = 2000

Note = tuple[str, str, Severity, str | None, Document | None]


class HookView:
    """``base.HookTask`` over the caller's context; ``held`` notes are recorded when they are released."""

    __slots__ = ("_context", "_held", "settings")

    def __init__(self, context: HookContext, settings: InspectorSettings, held: list[Note] | None = None) -> None:
        self._context = context
        self._held = held
        self.settings = settings

    @property
    def node(self) -> Node:
        return self._context.node

    @property
    def ports(self) -> Sequence[Port]:
        return self._context.ports

    @property
    def port_changes(self) -> PortChanges:
        return self._context.port_changes

    def note(
        self,
        name: str,
        message: str,
        *,
        severity: Severity = Severity.INFO,
        reason: str | None = None,
        detail: Document | None = None,
    ) -> None:
        message = printable(message, limit=MAX_MESSAGE, lines=True)
        if self._held is None:
            self._context.note(name, message, severity=severity, reason=reason, detail=detail)
        else:
            self._held.append((name, message, severity, reason, detail))

    def ports_elsewhere(self, macs: Iterable[str]) -> dict[str, str]:
        return self._context.ports_elsewhere(macs)

    def previous_inventory(self) -> Document | None:
        return self._context.previous_inventory()

    def holding(self) -> HookView:
        """Return a view in which notes are held back."""
        return HookView(self, self.settings, [])

    def release(self, *, failed: bool = False) -> None:
        """Record the held notes; if the hook ``failed``, only the warnings, because the rest did not happen."""
        for name, message, severity, reason, detail in self._held or ():
            if severity is not Severity.INFO or not failed:
                self._context.note(name, message, severity=severity, reason=reason, detail=detail)


def snapshot(task: HookContext) -> Callable[[], None]:
    """Return a function that restores node and port changes to their current state."""
    node, changes = task.node, task.port_changes
    fields = {name: getattr(node, name) for name in node.__struct_fields__}
    fields = {name: deep_copy(value) if isinstance(value, dict) else value for name, value in fields.items()}
    added, updated, removed = list(changes.added), dict(changes.updated), set(changes.removed)

    def restore() -> None:
        for name, value in fields.items():
            setattr(node, name, value)
        changes.added[:] = added
        changes.updated.clear()
        changes.updated.update(updated)
        changes.removed.clear()
        changes.removed.update(removed)

    return restore


Phase = Callable[[HookTask, Document, Document], None]


class Pipeline:
    """The configured hooks in order; one instance serves all threads of a worker."""

    def __init__(self, hooks: Sequence[LoadedHook], settings: InspectorSettings) -> None:
        """Raise ``HookSetupError`` if a hook precedes one that it depends on."""
        check_order(hooks)
        self._settings = settings
        self._hooks = tuple(hooks)
        # Skip phases that a hook does not implement.
        self._preprocess = [hook for hook in hooks if type(hook.hook).preprocess is not InspectionHook.preprocess]
        self._call = [hook for hook in hooks if type(hook.hook).__call__ is not InspectionHook.__call__]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the hooks, in order of execution."""
        return tuple(hook.name for hook in self._hooks)

    def run(
        self,
        context: HookContext,
        inventory: Any,
        plugin_data: Any,
        *,
        owned: bool = False,
        begins: Callable[[str], object] = str,
    ) -> Document:
        """Run all hooks; return the resulting plugin data. ``HookError`` if one rejects the data.

        ``context.node`` and ``context.port_changes`` have the other results. ``inventory`` and ``plugin_data`` (decoded
        JSON objects) are not changed; with ``owned``, ``plugin_data`` need not be copied, because the caller no longer
        uses it. ``begins`` is called with the name of each hook before it runs. ``StoreUnavailableError`` passes
        through.
        """
        if not isinstance(inventory, dict) or not isinstance(plugin_data, dict):
            raise HookError(Reason.INVALID_INVENTORY, "inventory and plugin data must be JSON objects")
        try:
            frozen = read_only(inventory)
            data = plugin_data if owned else deep_copy(plugin_data)
        except RecursionError:
            raise HookError(Reason.INVALID_INVENTORY, "the inspection data is nested too deeply") from None
        task = HookView(context, self._settings).holding()
        try:
            data, out = self._run_preprocess(task, frozen, data, begins)
            for hook in self._call:
                begins(hook.name)
                data = _step(hook, hook.hook, task, frozen, data, out)
            _check_storable(task)
        except HookError:
            task.release(failed=True)
            raise
        task.release()
        return data

    def _run_preprocess(
        self, task: HookView, inventory: Document, data: Document, begins: Callable[[str], object]
    ) -> tuple[Document, set[str]]:
        """Return the data, and the optional hooks that failed here."""
        failures: list[HookError] = []
        out: set[str] = set()
        for hook in self._preprocess:
            begins(hook.name)
            try:
                data = _step(hook, hook.hook.preprocess, task, inventory, data, out)
            except HookError as exc:
                failures.append(exc)
        if len(failures) == 1:
            raise failures[0]
        if failures:
            listing = "; ".join(f"{failure.hook}: {failure.message}" for failure in failures)
            raise HookError(failures[0].reason, f"{many(len(failures), 'hook')} rejected the data: {listing}")
        return data, out


def from_settings(settings: InspectorSettings) -> Pipeline:
    """Return the pipeline configured in ``[inspector]``; ``HookSetupError``."""
    return Pipeline(load(settings), settings)


def encode(plugin_data: Document) -> bytes:
    """Return plugin data as JSON for the store; ``HookError`` if a hook left data that JSON cannot represent."""
    try:
        return msgspec.json.encode(plugin_data)
    except (TypeError, ValueError, OverflowError, RecursionError) as exc:
        raise HookError(Reason.HOOK_FAILED, f"a hook left data that is not JSON: {exc}") from exc


def _step(
    hook: LoadedHook, phase: Phase, task: HookView, inventory: Document, data: Document, out: set[str]
) -> Document:
    """Run one phase of one hook and return the resulting plugin data.

    ``out`` has the optional hooks that failed, in either phase, and those that depend on them.
    """
    if hook.name in out:
        return data
    try:
        _check_needs(hook, out)
        if not hook.optional:
            _run_phase(hook, phase, task, inventory, data)
            return data
        return _attempt(hook, phase, task, inventory, data)
    except HookError as exc:
        if not hook.optional:
            raise
        out.add(hook.name)
        task.note(
            hook.name,
            f"the optional hook {hook.name} failed and was skipped: {exc.message}",
            severity=Severity.WARNING,
            reason=exc.reason,
        )
        return data


def _check_needs(hook: LoadedHook, out: set[str]) -> None:
    for needed in hook.hook.dependencies:
        if needed in out:
            message = f"{hook.name} depends on the optional hook {needed}, which failed"
            raise HookError(Reason.HOOK_FAILED, message, hook=hook.name)


def _run_phase(hook: LoadedHook, phase: Phase, task: HookTask, inventory: Document, data: Document) -> None:
    """Run one phase of one hook; any exception becomes a ``HookError`` that names it."""
    try:
        phase(task, inventory, data)
    except HookError as exc:
        exc.hook = hook.name
        exc.message = printable(exc.message, limit=MAX_MESSAGE, lines=True)
        raise
    except StoreError:
        raise
    except Exception as exc:
        # Plugin boundary: a hook's bug fails the node, with the reason, not the worker.
        structlog.get_logger(__name__).exception("hook raised an unexpected error", hook=hook.name)
        message = f"the hook {hook.name} raised {type(exc).__name__}: {exc}"
        raise HookError(Reason.HOOK_FAILED, printable(message, limit=MAX_MESSAGE, lines=True), hook=hook.name) from exc


def _attempt(hook: LoadedHook, phase: Phase, task: HookView, inventory: Document, data: Document) -> Document:
    """Run one phase of an optional hook on a copy of ``data``; keep all its changes, or none."""
    trial, view = deep_copy(data), task.holding()
    restore = snapshot(task)
    try:
        _run_phase(hook, phase, view, inventory, trial)
        encode(trial)
        _check_storable(task)
    except HookError:
        restore()
        raise
    view.release()
    return trial


def _check_storable(task: HookTask) -> None:
    """Detect data here that the store would reject, while the hook is still known."""
    changes = task.port_changes
    encode({"node": task.node, "added": changes.added, "updated": changes.updated, "removed": changes.removed})
