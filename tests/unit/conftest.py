"""What unit tests share: no property test fails because another process took the processor."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("unit", deadline=None)
settings.load_profile("unit")
