"""The simulated fleet: machines with BMCs and ramdisks, in a separate process or thread.

It knows the service only through its APIs; the service reaches the BMCs with the driver ``bmc.sim``. Its two commands,
``sim_command.py`` and ``demo/``, are part of the command line, as those of other packages are.
"""

from __future__ import annotations

from typing import Final

from ferroscope_client.installed import Command

SIM: Final = Command("ferroscope_sim.sim_command:sim", "Run a simulated fleet.", after="user")
DEMO: Final = Command(
    "ferroscope_sim.demo.demo_command:demo", "Demonstrate the service on a simulated fleet.", after="sim"
)
