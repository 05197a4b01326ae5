"""What unit tests share: no property test fails because another process took the processor."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("unit", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unit")
