"""Inspection hooks of the published Ironic, unchanged, in our pipeline."""

from __future__ import annotations

import subprocess
import sysconfig
from typing import Final

import msgspec

from tests import ROOT
from tests.support.bare_metal import PYTHON

HOOKS: Final = ("architecture", "memory", "cpus", "cpu_capabilities", "boot_mode", "pci_devices")
# Their interpreter has Ironic; it finds this service and its libraries after its own.
SCRIPT: Final = """
import importlib, json, sys, threading
sys.path += sys.argv[1:]
from importlib.metadata import EntryPoint
from ironic.conf import CONF
from ferroscope.config.options import InspectorSettings
from ferroscope.core.model import Node
from ferroscope.hooks import loader
from ferroscope.hooks.pipeline import Pipeline
from tests.fast.hooks.runs import context, machine

CONF([], project="ironic", default_config_files=[])
points = {}
for name in json.load(sys.stdin):
    module = importlib.import_module("ironic.drivers.modules.inspector.hooks." + name)
    (hook,) = (one for one in vars(module) if one.endswith("Hook"))
    points[name] = EntryPoint(name, f"{module.__name__}:{hook}", loader.GROUP)
settings = InspectorSettings(hooks=tuple(points))
cpu = {"architecture": "riscv64", "count": 8, "flags": ["aes", "vmx"]}
inventory = machine(cpu=cpu, boot={"current_boot_mode": "uefi", "pxe_interface": "aa:bb:cc:00:00:01"})
task = context(properties={})
Pipeline(loader.load(settings, points), settings).run(task, inventory, {"pci_devices": []})
print(json.dumps(task.node.properties))
"""


def test_hooks_of_the_published_ironic_run_unchanged() -> None:
    paths = [str(ROOT), str(ROOT / "client/src"), str(ROOT / "src"), sysconfig.get_path("purelib")]
    done = subprocess.run(
        [PYTHON, "-c", SCRIPT, *paths], input=msgspec.json.encode(HOOKS), capture_output=True, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr.decode()
    found = msgspec.json.decode(done.stdout.splitlines()[-1])
    capabilities = dict(pair.split(":") for pair in found.pop("capabilities").split(","))
    assert found == {"cpu_arch": "riscv64", "memory_mb": 65536, "cpus": 8}
    assert capabilities == {"boot_mode": "uefi", "cpu_aes": "true", "cpu_vt": "true"}
