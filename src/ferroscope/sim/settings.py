"""What a simulated fleet is told: how many machines, which, how fast, and whom they call back.

Frozen, typed, and filled by the caller alone; the same settings give the same fleet.
"""

from __future__ import annotations

import msgspec

# A client like any other: it has the path from the API's reference, not from the service's code.
DEFAULT_CALLBACK = "http://127.0.0.1:6385/v1/continue_inspection"


class FleetSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``nodes`` machines named ``sim-0001`` and so on, then one for each name in ``special``.

    ``special`` names choose an outcome (``sim-timeout-3``); see ``outcomes``. ``first`` is the
    number of the first of the ``nodes``, so that two fleets need not share addresses. ``inventory_file`` is a
    path: every machine then calls back with this inventory, patched with its own addresses; else
    ``inventory_size`` is the bytes of each generated one, None for a realistic variety.
    ``callback_url`` may hold several URLs with commas between them, tried in turn.

    Delays are seconds, spread evenly within mean ± jitter: ``boot_*`` from power-on to the first
    callback, ``bmc_*`` before each answer of a BMC. ``time_scale`` multiplies every other built-in
    time (the ramdisk's retries, slow BMCs), so that tests need not wait for them.
    ``request_timeout`` bounds one callback and is not scaled. ``connections`` bounds the
    callbacks on the wire at once.

    ``bmc_sigma`` above zero makes the BMCs' answers log-normal instead, with ``bmc_delay`` as their median: most
    answer soon, a few take very long, as at a real site. ``dead`` and ``flapping`` are shares (0 to 1) of the
    ``nodes``, picked by the seed and named for their outcomes (``sim-bmc-dead-0012``). ``bmc_faults`` false: every BMC
    works well and at once until the control call ``faults`` says otherwise, so that machines can be enrolled before
    they fail.
    ``subnet``: so many BMCs share one loopback /24 (127.0.1.1, 127.0.1.2 and so on, all with ``port``); 0, or a
    host that is not 127.0.0.1: all have the address of ``host``.
    """

    nodes: int = 50
    special: tuple[str, ...] = ()
    first: int = 1
    seed: int = 0
    host: str = "127.0.0.1"
    port: int = 0
    callback_url: str = DEFAULT_CALLBACK
    inventory_file: str | None = None
    inventory_size: int | None = None
    boot_delay: float = 2.0
    boot_jitter: float = 1.0
    bmc_delay: float = 0.0
    bmc_jitter: float = 0.0
    bmc_sigma: float = 0.0
    bmc_faults: bool = True
    dead: float = 0.0
    flapping: float = 0.0
    subnet: int = 20
    time_scale: float = 1.0
    request_timeout: float = 30.0
    connections: int = 64
