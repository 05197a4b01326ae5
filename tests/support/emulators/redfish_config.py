# The configuration of sushy-emulator, which is Python; it is read by the emulator's own interpreter.
#
# The fake driver gets a rack of machines with hardware to inspect, and a power state that follows
# after LAG seconds (its own lag is a random one of up to eleven), and notes each reset. No more than that is changed.
import json
import os
import time
from pathlib import Path

from sushy_tools import error
from sushy_tools.emulator.resources.systems import fakedriver

RACK = json.loads(os.environ["RACK"])

SUSHY_EMULATOR_FAKE_DRIVER = True
SUSHY_EMULATOR_STATE_DIR = RACK["state"]
SUSHY_EMULATOR_AUTH_FILE = RACK["auth"]
SUSHY_EMULATOR_LISTEN_IP = "127.0.0.1"
SUSHY_EMULATOR_FAKE_SYSTEMS = RACK["systems"]
SUSHY_EMULATOR_STORAGE = {
    system["uuid"]: [
        {
            "Id": "1",
            "Name": "Local storage",
            "StorageControllers": [{"MemberId": "0", "Name": "Contoso RAID", "SpeedGbps": 12}],
            "Drives": [drive["Id"] for drive in system["drives"]],
        }
    ]
    for system in RACK["systems"]
}
SUSHY_EMULATOR_DRIVES = {(system["uuid"], "1"): system["drives"] for system in RACK["systems"]}


class Hardware(fakedriver.FakeDriver):
    """The fake driver, with processors, memory and firmware as the rack has them."""

    def set_power_state(self, identity, state):
        super().set_power_state(identity, state)
        with Path(RACK["state"] + ".resets").open("a") as noted:
            noted.write(f"{identity} {state}\n")
        system = self._get(identity)
        if pending := system.get("pending_power"):
            self._update(system, pending_power=pending | {"apply_time": time.time() + RACK["lag"]})

    def get_total_memory(self, identity):
        return self._get(identity)["memory_gib"]

    def get_total_cpus(self, identity):
        return sum(processor["cores"] for processor in self._get(identity)["processors"])

    def get_processors(self, identity):
        return self._get(identity)["processors"]

    def get_versions(self, identity):
        return {"BiosVersion": self._get(identity)["bios_version"]}

    def get_http_boot_uri(self, identity):
        raise error.NotSupportedError("no HTTP boot here")


fakedriver.FakeDriver = Hardware
