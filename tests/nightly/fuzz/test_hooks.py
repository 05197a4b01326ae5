"""The properties of tests/fast/hooks/test_hook_fuzz.py, each with 20 times as many examples."""

from __future__ import annotations

import os
import runpy
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, settings

from tests import ROOT
from tests.fast.hooks.test_hook_fuzz import OTHER_ODD, replace_each

settings.register_profile("many", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("many")

with mock.patch.dict(os.environ, {"FERROSCOPE_FUZZ": os.environ.get("FERROSCOPE_FUZZ", "20")}):
    _MANY = runpy.run_path(str(ROOT / "tests/fast/hooks/test_hook_fuzz.py"))

globals().update({name: found for name, found in _MANY.items() if name[:5] == "test_" and hasattr(found, "hypothesis")})


@pytest.mark.parametrize("odd", OTHER_ODD, ids=lambda odd: str(odd)[:10])
def test_every_value_may_be_another_odd_one(odd: Any) -> None:
    replace_each(odd)
