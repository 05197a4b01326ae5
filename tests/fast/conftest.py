"""What unit tests share: property tests ask the same at each push, and ``make nightly PART=fuzz`` asks something else.

None fails because another process took the processor.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("unit", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("random", settings.get_profile("unit"), derandomize=False)


def pytest_configure(config: pytest.Config) -> None:
    if not config.getoption("--hypothesis-profile"):
        settings.load_profile("unit")
