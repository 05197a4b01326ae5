"""Fill a database with ironic-inspector's own code: ``python produce.py CONFIG_FILE DIRECTORY``.

Run by the interpreter of ``.inspector-venv``. ``DIRECTORY`` has the data that a real ironic-inspector 12.5.0 stored of
a machine (``processed.json``, ``unprocessed.json``); see ``test_import_inspector.py`` for what each node stands for.
"""

import json
import sys
from pathlib import Path

from ironic_inspector import introspection_state as istate
from ironic_inspector import node_cache, rules
from ironic_inspector.common import swift
from ironic_inspector.conf import opts
from ironic_inspector.db import api as db
from oslo_config import cfg

FINISHED, CANCELED, WAITING, UNKNOWN, FAILED = (
    f"{number}1111111-1111-4111-8111-111111111111" for number in range(1, 6)
)


def main(config, directory):
    opts.parse_args(["--config-file", config])
    data = {name: json.loads((Path(directory) / f"{name}.json").read_text()) for name in ("processed", "unprocessed")}
    for uuid in (FINISHED, UNKNOWN):
        node = node_cache.start_introspection(uuid, bmc_address=["192.0.2.7"])
        node.fsm_event(istate.Events.wait)
        node.fsm_event(istate.Events.process)
        own = json.dumps(data) if uuid == FINISHED else json.dumps(data).replace("11:22:33:44:55", "10:22:33:44:66")
        for name, content in json.loads(own).items():
            if cfg.CONF.processing.store_data == "swift":
                swift.store_introspection_data(content, uuid, suffix=None if name == "processed" else "UNPROCESSED")
            else:
                db.store_introspection_data(uuid, content, name == "processed")
        node.finished(istate.Events.finish)
    node = node_cache.start_introspection(CANCELED, bmc_address=["192.0.2.8"])
    node.fsm_event(istate.Events.wait)
    node.fsm_event(istate.Events.abort)
    node.finished(istate.Events.abort_end, error="Canceled by operator")
    node = node_cache.start_introspection(FAILED)
    node.finished(istate.Events.error, error="Failed to power on the node")
    node = node_cache.start_introspection(WAITING, bmc_address=["192.0.2.9"], manage_boot=False)
    node.fsm_event(istate.Events.wait)
    rules.create(
        [
            {"op": "ge", "field": "memory_mb", "value": 12288},
            {"op": "contains", "field": "inventory.interfaces[*].ipv4_address", "value": "^127", "invert": True,
             "multiple": "all"},
        ],
        [{"action": "set-attribute", "path": "/extra/size", "value": "{data[memory_mb]}"}],
        uuid="aaaaaaaa-1111-4111-8111-111111111111",
        description="large machines",
        scope="rack 1",
    )  # fmt: skip
    rules.create(
        [{"op": "is-empty", "field": "inventory.cpu.`parent`"}],
        [{"action": "fail", "message": "boom"}],
        uuid="bbbbbbbb-1111-4111-8111-111111111111",
    )


main(*sys.argv[1:])
