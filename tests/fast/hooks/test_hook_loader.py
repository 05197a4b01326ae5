"""Loading hooks: what is configured is there and in order, or the service says what to change."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import Any, ClassVar

import pytest

from ferroscope.config.options import InspectorSettings
from ferroscope.hooks import loader
from ferroscope.hooks.base import HookSetupError, InspectionHook
from ferroscope.hooks.pipeline import Pipeline, from_settings
from tests.fast.hooks.runs import context, installed, machine

HERE = "tests.fast.hooks.test_hook_loader"


class Broken(InspectionHook):
    def __init__(self) -> None:
        raise RuntimeError("no known_accelerators.yaml")


class Picky(InspectionHook):
    def configure(self, settings: InspectorSettings) -> None:
        raise HookSetupError(f"not with {settings.add_ports}")


class NoHook:
    """Something else that a package offers under our group by mistake."""


class OfIronic:
    """A hook as Ironic's contract has it: another base class, changes that it saves itself."""

    dependencies: ClassVar[list[str]] = ["architecture"]

    def preprocess(self, task: Any, inventory: dict[str, Any], plugin_data: dict[str, Any]) -> None:
        plugin_data["seen"] = len(inventory["interfaces"])

    def __call__(self, task: Any, inventory: dict[str, Any], plugin_data: dict[str, Any]) -> None:
        task.node.set_property("rack", "r1")
        task.node.extra["nics"] = plugin_data["seen"]
        task.node.save()


def names(*hooks: str) -> list[str]:
    return [hook.name for hook in loader.load(InspectorSettings(hooks=hooks), installed())]


def refusal(*hooks: str, **more: str) -> str:
    points = {name: EntryPoint(name, value, loader.GROUP) for name, value in more.items()}
    with pytest.raises(HookSetupError) as info:
        loader.load(InspectorSettings(hooks=hooks), {**installed(), **points})
    return str(info.value)


def test_the_default_settings_give_the_default_pipeline() -> None:
    expected = ("ramdisk-error", "validate-interfaces", "ports", "architecture")
    assert from_settings(InspectorSettings()).names == expected


def test_default_hooks_are_expanded_with_the_configured_default() -> None:
    settings = InspectorSettings(hooks=("memory", "$default_hooks"), default_hooks=("architecture",))
    assert [hook.name for hook in loader.load(settings, installed())] == ["memory", "architecture"]


def test_an_optional_hook_is_loaded_as_such() -> None:
    hooks = loader.load(InspectorSettings(hooks=("architecture", "?memory")), installed())
    assert [(hook.name, hook.optional) for hook in hooks] == [("architecture", False), ("memory", True)]


def test_unknown_hooks_are_named_all_at_once_with_what_is_available() -> None:
    message = refusal("memory", "no-such-hook", "?neither")
    assert "'no-such-hook', 'neither'" in message
    for name in ("architecture", "memory", "ports", "ramdisk-error", "validate-interfaces"):
        assert name in message


def test_a_dependency_that_is_missing_is_named_with_its_place() -> None:
    assert "ports depends on validate-interfaces: add validate-interfaces before ports" in refusal("ports")


def test_a_dependency_that_comes_too_late_is_to_be_moved() -> None:
    message = refusal("ports", "validate-interfaces")
    assert "ports depends on validate-interfaces: move validate-interfaces before ports" in message
    assert "ports,validate-interfaces" in message


def test_a_hook_that_is_listed_twice_is_refused() -> None:
    assert "memory is listed twice" in refusal("memory", "?memory")


def test_a_hook_that_cannot_be_imported_is_named_with_the_cause() -> None:
    message = refusal("lost", lost="no_such_package.hooks:Lost")
    assert "(no_such_package.hooks:Lost) cannot be loaded: ModuleNotFoundError" in message


def test_a_hook_that_cannot_be_made_is_named_with_the_cause() -> None:
    message = refusal("broken", broken=f"{HERE}:Broken")
    assert "broken" in message
    assert "no known_accelerators.yaml" in message


def test_something_that_is_no_hook_is_refused() -> None:
    assert "ferroscope.hooks.base.InspectionHook" in refusal("nothing", nothing=f"{HERE}:NoHook")


def test_a_hook_written_to_ironics_contract_runs_unchanged() -> None:
    points = {**installed(), "theirs": EntryPoint("theirs", f"{HERE}:OfIronic", loader.GROUP)}
    settings = InspectorSettings(hooks=("architecture", "theirs"))
    task = context()
    data = Pipeline(loader.load(settings, points), settings).run(task, machine(), {})
    assert data["seen"] == 4
    assert (task.node.properties["rack"], task.node.extra) == ("r1", {"nics": 4})
    assert "depends on architecture" in refusal("theirs", theirs=f"{HERE}:OfIronic")


def test_what_is_wrong_with_the_options_of_all_hooks_is_said_at_once() -> None:
    assert refusal("a", "?b", a=f"{HERE}:Picky", b=f"{HERE}:Picky") == "a: not with pxe; b: not with pxe"
