"""The pipeline: two phases, whose failures do what, and what hooks cannot touch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import msgspec
import pytest
import structlog.testing

from ferroscope.config.options import InspectorSettings
from ferroscope.contracts.errors import StoreUnavailableError
from ferroscope.core.model import Severity
from ferroscope.hooks import helpers
from ferroscope.hooks.base import HookError, HookSetupError, HookTask, InspectionHook
from ferroscope.hooks.loader import LoadedHook
from ferroscope.hooks.pipeline import Pipeline, encode
from ferroscope_client.core.reasons import Reason
from tests.fast.hooks.runs import NODE, Hook, Run, Step, context, failure, port, run_objects
from tests.support.rows import each


class NeedsFirst(Hook):
    dependencies: ClassVar[tuple[str, ...]] = ("first",)


def log(word: str) -> Step:
    def step(_task: HookTask, _inventory: dict[str, Any], plugin_data: dict[str, Any]) -> None:
        plugin_data.setdefault("log", []).append(word)

    return step


def refuse(message: str, reason: Reason = Reason.INVALID_INVENTORY) -> Step:
    def step(*_args: Any) -> None:
        raise HookError(reason, message)

    return step


def crash(*_args: Any) -> None:
    raise KeyError("cpu")


def test_all_hooks_preprocess_before_any_is_called() -> None:
    first, second = (Hook(before=log(f"{name} before"), after=log(f"{name} after")) for name in "ab")
    result = run_objects({"a": first, "b": second})
    assert result.plugin_data == {"log": ["a before", "b before", "a after", "b after"]}


def test_a_hook_without_phases_does_nothing() -> None:
    assert run_objects({"nothing": InspectionHook()}, {}, {"a": 1}).plugin_data == {"a": 1}


def test_hooks_see_the_inspectors_settings_and_no_others() -> None:
    seen: list[object] = []
    run_objects({"a": Hook(after=lambda task, _inventory, _data: seen.append(task.settings))})
    assert seen == [InspectorSettings()]


def test_preprocess_failures_of_all_hooks_are_reported_together() -> None:
    error = failure(
        {
            "a": Hook(before=refuse("no RAM", Reason.RAMDISK_ERROR)),
            "b": Hook(before=log("ran")),
            "c": Hook(before=refuse("no CPU")),
        }
    )
    assert error.reason is Reason.RAMDISK_ERROR
    assert error.message == "2 hooks rejected the data: a: no RAM; c: no CPU"
    assert error.hook is None


def test_no_hook_is_called_after_a_preprocess_failure() -> None:
    called: list[str] = []
    error = failure({"a": Hook(before=refuse("no")), "b": Hook(after=lambda *_args: called.append("b"))})
    assert error.hook == "a"
    assert called == []


def test_the_first_failure_of_a_call_ends_the_pipeline() -> None:
    called: list[str] = []
    error = failure({"a": Hook(after=refuse("no")), "b": Hook(after=lambda *_args: called.append("b"))})
    assert error.hook == "a"
    assert called == []


@each("phase", ["before", "after"])
def test_a_crash_of_a_hook_fails_the_node_and_names_the_hook(phase: str) -> None:
    with pytest.raises(HookError) as info, structlog.testing.capture_logs() as logs:
        run_objects({"a": Hook(**{phase: crash})})
    assert info.value.reason is Reason.HOOK_FAILED
    assert info.value.message == "the hook a raised KeyError: 'cpu'"
    assert [(entry["hook"], entry["log_level"]) for entry in logs] == [("a", "error")]


def test_a_store_that_cannot_answer_is_no_fault_of_the_hook() -> None:
    def ask(*_args: Any) -> None:
        raise StoreUnavailableError("locked")

    for optional in ((), ("a",)):
        with pytest.raises(StoreUnavailableError):
            run_objects({"a": Hook(after=ask)}, optional=optional)


@each("step", [refuse("no GPU"), crash])
@each("phase", ["before", "after"])
def test_an_optional_hook_that_fails_is_a_warning_and_nothing_else(step: Step, phase: str) -> None:
    with structlog.testing.capture_logs():
        result = run_objects(
            {"a": Hook(after=log("a")), "gpu": Hook(**{phase: step}), "c": Hook(after=log("c"))}, optional=("gpu",)
        )
    assert result.plugin_data == {"log": ["a", "c"]}
    (note,) = result.notes
    assert (note.step, note.severity) == ("gpu", Severity.WARNING)
    assert note.reason in (Reason.INVALID_INVENTORY, Reason.HOOK_FAILED)
    assert "optional hook gpu failed" in note.message


def test_an_optional_hook_whose_preprocess_failed_is_not_called() -> None:
    result = run_objects({"gpu": Hook(before=refuse("no"), after=log("called"))}, optional=("gpu",))
    assert result.plugin_data == {}


def spoil_and_fail(task: HookTask, _inventory: dict[str, Any], plugin_data: dict[str, Any]) -> None:
    task.node.properties["half"] = "done"
    task.node.extra = {"half": "done"}
    task.node.resource_class = "half"
    helpers.save(task, port("aa:bb:cc:00:00:09"))
    task.port_changes.removed.add("some-port")
    plugin_data["half"] = "done"
    plugin_data["log"].append("half")
    raise HookError(Reason.HOOK_FAILED, "and now this")


@each("phase", ["before", "after"])
def test_an_optional_hook_that_fails_half_way_leaves_nothing_behind(phase: str) -> None:
    result = run_objects({"a": Hook(**{phase: spoil_and_fail})}, {}, {"log": ["kept"]}, optional=("a",))
    assert result.plugin_data == {"log": ["kept"]}
    assert result.node == result.context.before
    assert result.ports() == {}
    assert result.context.port_changes.removed == set()


def test_an_optional_hook_that_fails_does_not_claim_on_the_timeline_what_was_taken_back() -> None:
    def work(task: HookTask, *_args: Any) -> None:
        task.note("a", "added a port")
        raise HookError(Reason.HOOK_FAILED, "and now this")

    (note,) = run_objects({"a": Hook(after=work)}, optional=("a",)).notes
    assert note.severity is Severity.WARNING


def test_notes_of_an_optional_hook_that_succeeds_are_kept() -> None:
    def work(task: HookTask, *_args: Any) -> None:
        task.note("a", "added a port", severity=Severity.WARNING, reason="port-conflict", detail={"x": 1})

    for optional in ((), ("a",)):
        (note,) = run_objects({"a": Hook(after=work)}, optional=optional).notes
        assert (note.step, note.message, note.severity) == ("a", "added a port", Severity.WARNING)
        assert (note.reason, note.detail) == ("port-conflict", {"x": 1})


def test_messages_of_plugins_are_made_short_and_printable() -> None:
    wild = "a\x00b\n" + "x" * 100_000

    def work(task: HookTask, *_args: Any) -> None:
        task.note("a", wild, severity=Severity.WARNING)
        raise HookError(Reason.HOOK_FAILED, wild)

    task = context()
    with pytest.raises(HookError) as info:
        Pipeline([LoadedHook("a", Hook(after=work))], InspectorSettings()).run(task, {}, {})
    for message in (str(info.value), info.value.message, Run(task, {}).notes[0].message):
        assert message.startswith("a\N{REPLACEMENT CHARACTER}b\nxxx")
        assert len(message) == 2000


def leave_in_node(task: HookTask, _inventory: dict[str, Any], _data: dict[str, Any]) -> None:
    task.node.properties["x"] = object()


def leave_in_port(task: HookTask, _inventory: dict[str, Any], _data: dict[str, Any]) -> None:
    helpers.save(task, port("aa:bb:cc:00:00:09", extra={"x": object()}))


@each("leave", [leave_in_node, leave_in_port])
def test_what_the_store_could_not_hold_is_a_fault_of_a_hook(leave: Step) -> None:
    assert failure({"a": Hook(after=leave)}).reason is Reason.HOOK_FAILED
    result = run_objects({"a": Hook(after=leave)}, optional=("a",))
    assert (result.node, result.ports()) == (result.context.before, {})


def test_plugin_data_that_an_optional_hook_spoilt_are_left_out() -> None:
    def leave(_task: HookTask, _inventory: dict[str, Any], plugin_data: dict[str, Any]) -> None:
        plugin_data["x"] = object()

    assert run_objects({"a": Hook(after=leave)}, {}, {"y": 1}, optional=("a",)).plugin_data == {"y": 1}


def test_an_optional_hook_that_succeeds_takes_effect() -> None:
    def work(task: HookTask, _inventory: dict[str, Any], plugin_data: dict[str, Any]) -> None:
        task.node.properties["gpus"] = 4
        plugin_data["gpus"] = 4

    result = run_objects({"a": Hook(after=work)}, optional=("a",))
    assert result.plugin_data == {"gpus": 4}
    assert result.node.properties == {"old": 1, "gpus": 4}


@each("phase", ["before", "after"])
def test_a_hook_cannot_run_without_the_optional_one_that_it_needs(phase: str) -> None:
    error = failure(
        {"first": Hook(**{phase: refuse("no")}), "second": NeedsFirst(**{phase: log("ran")})}, optional=("first",)
    )
    assert (error.reason, error.hook) == (Reason.HOOK_FAILED, "second")
    assert error.message == "second depends on the optional hook first, which failed"


def test_an_optional_hook_is_left_out_together_with_the_one_that_it_needs() -> None:
    result = run_objects(
        {"first": Hook(before=refuse("no")), "second": NeedsFirst(after=log("ran")), "c": Hook(after=log("c"))},
        optional=("first", "second"),
    )
    assert result.plugin_data == {"log": ["c"]}
    assert [note.step for note in result.notes] == ["first", "second"]


def test_dependencies_are_checked_when_the_pipeline_is_made() -> None:
    with pytest.raises(HookSetupError, match="add first before second"):
        Pipeline([LoadedHook("second", NeedsFirst())], InspectorSettings())


def test_plugin_data_of_the_caller_stay_as_they_are() -> None:
    given_data = {"log": ["old"], "nested": {"list": [{"a": 1}]}}

    def change(_task: HookTask, _inventory: dict[str, Any], plugin_data: dict[str, Any]) -> None:
        plugin_data["nested"]["list"][0]["a"] = 2
        plugin_data["log"].clear()

    result = run_objects({"a": Hook(after=change)}, {}, given_data)
    assert given_data == {"log": ["old"], "nested": {"list": [{"a": 1}]}}
    assert result.plugin_data == {"log": [], "nested": {"list": [{"a": 2}]}}


def test_owned_plugin_data_are_changed_in_place() -> None:
    data: dict[str, Any] = {}
    pipeline = Pipeline([LoadedHook("a", Hook(after=log("a")))], InspectorSettings())
    assert pipeline.run(context(), {}, data, owned=True) is data
    assert data == {"log": ["a"]}


@each(("inventory", "plugin_data"), [(None, {}), ([], {}), ("x", {}), ({}, []), ({}, 1)])
def test_data_that_are_no_objects_are_refused(inventory: object, plugin_data: object) -> None:
    pipeline = Pipeline([], InspectorSettings())
    with pytest.raises(HookError) as info:
        pipeline.run(context(), inventory, plugin_data)
    assert info.value.reason is Reason.INVALID_INVENTORY


@each("as_list", [False, True])
def test_data_that_are_nested_without_end_are_refused(as_list: bool) -> None:
    deep: Any = {}
    for _ in range(100_000):
        deep = {"a": [deep]} if as_list else {"a": deep}
    pipeline = Pipeline([], InspectorSettings())
    for inventory, plugin_data in ((deep, {}), ({}, deep)):
        with pytest.raises(HookError, match="nested too deeply") as info:
            pipeline.run(context(), inventory, plugin_data)
        assert info.value.reason is Reason.INVALID_INVENTORY


def test_plugin_data_that_are_not_json_are_a_fault_of_a_hook() -> None:
    assert encode({"a": [1]}) == b'{"a":[1]}'
    with pytest.raises(HookError) as info:
        encode({"a": object()})
    assert info.value.reason is Reason.HOOK_FAILED


class TestPortEdits:
    """How hooks change ports, one after the other."""

    MAC = "aa:bb:cc:00:00:01"

    def edited(self, *steps: Callable[[Run], None]) -> Run:
        result = Run(context([port(self.MAC)]), {})
        for step in steps:
            step(result)
        return result

    def test_a_change_is_seen_by_the_next_hook(self) -> None:
        result = self.edited(
            lambda run: helpers.save(run.context, msgspec.structs.replace(run.ports()[self.MAC], physical_network="a")),
            lambda run: helpers.save(run.context, msgspec.structs.replace(run.ports()[self.MAC], pxe_enabled=False)),
        )
        changed = result.context.port_changes
        assert (changed.added, changed.removed) == ([], set())
        assert changed.updated == {f"port-{self.MAC}": port(self.MAC, physical_network="a", pxe_enabled=False)}

    def test_a_new_port_that_is_changed_is_added_once_as_changed(self) -> None:
        new = port("aa:bb:cc:00:00:02")
        changed = msgspec.structs.replace(new, physical_network="a")
        result = self.edited(lambda run: helpers.save(run.context, new), lambda run: helpers.save(run.context, changed))
        assert result.context.port_changes.added == [changed]
        assert result.context.port_changes.updated == {}

    def test_a_changed_port_can_be_removed(self) -> None:
        changed = port(self.MAC, physical_network="a")
        result = self.edited(
            lambda run: helpers.save(run.context, changed), lambda run: helpers.remove(run.context, changed)
        )
        assert result.ports() == {}
        assert result.context.port_changes.removed == {f"port-{self.MAC}"}
        assert result.context.port_changes.updated == {}

    def test_a_new_port_that_is_removed_was_never_there(self) -> None:
        new = port("aa:bb:cc:00:00:02", node=NODE)
        result = self.edited(lambda run: helpers.save(run.context, new), lambda run: helpers.remove(run.context, new))
        assert set(result.ports()) == {self.MAC}
        assert (result.context.port_changes.added, result.context.port_changes.removed) == ([], set())


def test_of_a_pipeline_that_fails_only_warnings_are_noted() -> None:
    def note(task: HookTask, *_rest: Any) -> None:
        task.note("a", "ports added")
        task.note("a", "the address is odd", severity=Severity.WARNING)

    task = context()
    pipeline = Pipeline([LoadedHook("a", Hook(after=note)), LoadedHook("b", Hook(after=crash))], InspectorSettings())
    with pytest.raises(HookError), structlog.testing.capture_logs():
        pipeline.run(task, {}, {})
    assert [entry.message for _when, entry in task.journal.entries] == ["the address is odd"]
