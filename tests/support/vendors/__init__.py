"""A test bench of vendors: Redfish services that answer as the BMCs of vendors do, each described as data.

``personality`` has the words of such a description; ``dell``, ``hpe`` and the others the descriptions, each with the
public documents and bug reports that its facts are from. ``machine`` is the simulated machine, ``documents`` what its
BMC says of it, ``service`` the HTTP(S) server, ``recorded`` a server of what ``ferroscope bmc report`` wrote down.
"""

from __future__ import annotations

from typing import Final

from tests.support.vendors import dell, fujitsu, hpe, lenovo, nvidia, openbmc, supermicro
from tests.support.vendors.personality import Personality

ALL: Final[tuple[Personality, ...]] = (
    *dell.ALL,
    *hpe.ALL,
    *lenovo.ALL,
    *supermicro.ALL,
    *fujitsu.ALL,
    *openbmc.ALL,
    *nvidia.ALL,
)
