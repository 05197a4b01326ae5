"""Runs cases through the inspection hooks of the real Ironic; its interpreter is that of an environment with Ironic.

Standard input: a JSON list of cases (name, hooks, options, properties, ports, elsewhere, previous,
inventory, plugin_data). Standard output: a JSON list of what came of each. Nodes and ports are
Ironic's own objects in a database of its own (SQLite, in a directory that is given); the order of
steps is that of its conductor. Nothing of this service is imported.
"""

from __future__ import annotations

import contextlib
import json
import sys
import types
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ironic.common import context as ironic_context
from ironic.conf import CONF
from ironic.db import migration
from ironic.drivers.modules import inspect_utils
from ironic.drivers.modules.inspector.hooks import pci_devices
from oslo_log import log

PORT_FIELDS = ("pxe_enabled", "physical_network", "local_link_connection", "extra")


def main() -> None:
    """Run all cases of standard input."""
    directory = Path(sys.argv[1])
    prepare(directory)
    cases = json.load(sys.stdin)
    json.dump([run(number, case) for number, case in enumerate(cases)], sys.stdout)


def prepare(directory: Path) -> None:
    """Configure Ironic and make its database."""
    log.register_options(CONF)
    CONF([], project="ironic", default_config_files=[], default_config_dirs=[])
    CONF.set_override("connection", f"sqlite:///{directory / 'ironic.db'}", "database")
    # What it logs of every case belongs to no answer.
    CONF.set_override("use_stderr", False)
    CONF.set_override("log_file", str(directory / "ironic.log"))
    log.setup(CONF, "ironic")
    from ironic import objects

    objects.register_all()
    migration.create_schema()


def run(number: int, case: dict) -> dict:
    """Return what Ironic makes of one case."""
    from ironic import objects

    context = ironic_context.get_admin_context()
    node = new_node(context, case["properties"])
    for fields in case["ports"]:
        objects.Port(context, node_id=node.id, **fields).create()
    other = new_node(context, {})
    for mac in case["elsewhere"]:
        objects.Port(context, node_id=other.id, address=mac).create()
    if case["previous"] is not None:
        objects.NodeInventory(context, node_id=node.id, inventory_data=case["previous"], plugin_data={}).create()
    task = types.SimpleNamespace(node=node, context=context, shared=False)
    plugin_data = case["plugin_data"]
    with options(case["options"]):
        try:
            # Hooks are cached by interface, and read some options when they are made.
            hooks = inspect_utils.validate_inspection_hooks(f"case-{number}", case["hooks"])
            inspect_utils.run_inspection_hooks(task, case["inventory"], plugin_data, hooks, None)
            error = None
        except Exception as exc:  # noqa: BLE001  # whatever it is, it is what Ironic makes of the case
            error = f"{type(exc).__name__}: {exc}"
    ports = objects.Port.list_by_node_id(context, node.id)
    found = {
        "error": error,
        "properties": objects.Node.get_by_id(context, node.id).properties,
        "ports": {port.address: {name: getattr(port, name) for name in PORT_FIELDS} for port in ports},
        "plugin_data": json.loads(json.dumps(plugin_data)),
    }
    for one in (node, other):
        one.destroy()
    return found


def new_node(context: Any, properties: dict) -> Any:
    """Return a node in Ironic's database."""
    from ironic import objects

    node = objects.Node(context, uuid=str(uuid.uuid4()), driver="fake-hardware", properties=properties)
    node.create()
    return node


@contextlib.contextmanager
def options(wanted: dict) -> Iterator[None]:
    """Set ``[inspector]`` options for a while."""
    for name, value in wanted.items():
        # Here a number of GiB, there whether one is left.
        CONF.set_override(name, bool(value) if name == "disk_partitioning_spacing" else value, "inspector")
    # Read when the module is imported.
    pci_devices.PciDevicesHook._aliases = pci_devices._parse_pci_alias_entries()
    try:
        yield
    finally:
        for name in wanted:
            CONF.clear_override(name, "inspector")


if __name__ == "__main__":
    main()
