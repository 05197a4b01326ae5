"""The tests of a sync, with NetBox."""

from __future__ import annotations

from tests.nightly.dcim.test_faults import *  # noqa: F403
from tests.nightly.dcim.test_sync import *  # noqa: F403
