"""``ramdisk-error``: reads the ramdisk's report on itself. An error ends the inspection."""

from __future__ import annotations

from itertools import islice
from typing import Final

from ferroscope.core.model import Document, Severity
from ferroscope.hooks.base import HookError, HookTask, InspectionHook
from ferroscope.hooks.helpers import listing, part, printable
from ferroscope_client.core import json_safety
from ferroscope_client.core.reasons import Reason

_MAX_LENGTH: Final = 2000
_MAX_REASON_LENGTH: Final = 300
# The JSON of all collectors together has no more objects and arrays than a callback may have.
_MAX_RESULTS: Final = 16
_MAX_CONTAINERS: Final = json_safety.MAX_CONTAINERS // _MAX_RESULTS
_KEY: Final = "collectors"


class RamdiskErrorHook(InspectionHook):
    """Rejects data in which `error` is set; reads the collectors' JSON; notes at which NICs the firmware kept LLDP."""

    def preprocess(self, task: HookTask, inventory: Document, plugin_data: Document) -> None:
        error = plugin_data.get("error")
        if error:
            message = printable(error, limit=_MAX_LENGTH, lines=True)
            raise HookError(Reason.RAMDISK_ERROR, f"Ramdisk reported error: {message}")
        if _KEY in plugin_data:
            reported = islice(part(plugin_data, _KEY).items(), _MAX_RESULTS)
            results = {name: _read_result(result) for name, result in reported if isinstance(result, dict)}
            plugin_data[_KEY] = results
            _note_results(task, results)

    def __call__(self, task: HookTask, inventory: Document, plugin_data: Document) -> None:
        kept = [f"{printable(nic)} ({printable(why)})" for nic, why in part(plugin_data, "lldp_kept").items()]
        if kept:
            message = f"no LLDP from {listing(kept, limit=5)}: the firmware of the NIC keeps it"
            task.note("ramdisk-error", message)


def _read_result(result: Document) -> Document:
    """Return the result of a collector, with its JSON as ``data``. Without ``error``, it succeeded."""
    code, seconds, error = result.get("exit_code"), result.get("seconds"), result.get("error")
    data = None
    try:
        if code is not None:
            data = _read_json(str(result.get("output")).encode(errors="replace"))
    except json_safety.JsonError as exc:
        error = error or f"it printed no JSON: {exc}"
    if code != 0:
        error = error or f"exit code {code}"
    return {"exit_code": code, "seconds": seconds, "data": data, "error": error}


def _read_json(raw: bytes) -> object:
    document = json_safety.decode(raw, max_containers=_MAX_CONTAINERS)
    json_safety.check_depth(raw)
    return json_safety.clean_value(document)


def _note_results(task: HookTask, results: dict[str, Document]) -> None:
    errors = {name: result["error"] for name, result in results.items() if result["error"]}
    succeeded = [name for name in results if name not in errors]
    if succeeded:
        task.note("collectors", f"collectors that succeeded: {listing(succeeded)}")
    if errors:
        reasons = [f"{printable(name)}: {printable(error, limit=_MAX_REASON_LENGTH)}" for name, error in errors.items()]
        task.note("collectors", f"collectors that failed: {'; '.join(reasons)}", severity=Severity.WARNING)
