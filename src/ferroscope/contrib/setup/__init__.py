"""``ferroscope setup``: writes the configuration of this host, and makes it a boot host on request.

Nothing here is needed once the configuration is written: the service reads it, and ``ferroscope doctor`` checks it.
"""

from __future__ import annotations

from typing import Final

from ferroscope_client.installed import Command

SETUP: Final = Command(
    "ferroscope.contrib.setup.setup_command:setup",
    "Ask five questions and write the configuration.",
    after=None,
)
