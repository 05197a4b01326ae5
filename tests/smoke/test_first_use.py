"""The first calls of a service come in at once, in threads; their types must have been looked at by then."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

# The imports of a worker and an api; then every struct that is decoded in threads, by six of them at once.
_PLAY: Final = """
import sys, threading
import msgspec
from ferroscope.api.routes import ROUTES
from ferroscope.api.baremetal import node_input, port_fields, rule_schema
from ferroscope.core.boot_macs import FilterRecord
from ferroscope.core.model import Node, Port
from ferroscope.rules import explain
from ferroscope_sim import enroll

kinds = [route.body for route in ROUTES if route.body] + [route.query for route in ROUTES]
kinds += [node_input.NodeSettable, port_fields.PortSettable, rule_schema.RuleSettable, FilterRecord, Node, Port]
kinds += [enroll.EnrolledNode, enroll.NodePage]
print(len(kinds))
sys.setswitchinterval(1e-7)
together = threading.Barrier(6)
WORDS = ["uuid", "name", "driver", "address", "node_uuid", "description", "phase", "host", "state"]
NESTED = {"extra": {}, "driver_info": {}, "actions": [], "conditions": []}
BODY = msgspec.json.encode(dict.fromkeys(WORDS, "x") | NESTED)

def play():
    for kind in kinds:
        together.wait()
        try:
            msgspec.json.decode(BODY, type=kind)
        except msgspec.ValidationError:
            pass

threads = [threading.Thread(target=play) for _ in range(6)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def test_no_type_is_decoded_for_the_first_time_in_threads() -> None:
    for _ in range(5):
        played = subprocess.run([sys.executable, "-c", _PLAY], capture_output=True, text=True, check=False)
        assert played.returncode == 0, f"{played.returncode}: {played.stderr}"
        assert int(played.stdout) > 50
