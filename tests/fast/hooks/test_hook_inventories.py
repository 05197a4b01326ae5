"""The default hooks on whole inventories: simulated ones, and recorded ones where a checkout has them beside it."""

from __future__ import annotations

from typing import Any

from ferroscope.config.options import InspectorSettings
from ferroscope.hooks import loader
from ferroscope.hooks.pipeline import Pipeline
from ferroscope_sim import inventory as sim
from tests.fast.hooks.runs import context, installed
from tests.support.calls import calls


def test_the_default_hooks_call_fewer_than_seven_functions_for_each_value_of_the_inventory() -> None:
    """What that takes in time is part of what ``python -m bench gate`` measures."""
    settings = InspectorSettings()
    pipeline = Pipeline(loader.load(settings, installed()), settings)
    body = sim.document(7, size=40_000)
    inventory = body.pop("inventory")
    pipeline.run(context(), inventory, body)  # what is made once is there now
    task = context()
    assert calls(lambda: pipeline.run(task, inventory, body)) < 7 * _count_values(inventory)


def _count_values(document: Any) -> int:
    inner = document.values() if isinstance(document, dict) else document if isinstance(document, list) else ()
    return 1 + sum(map(_count_values, inner))
