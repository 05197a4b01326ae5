"""Cases of the node's properties and capabilities, and of what the collector extra-hardware finds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.corpus import Case
from tests.corpus.machines import MAC, body, pci

_ALIASES = [
    '{"vendor_id": "10de", "product_id": "1eb8", "name": "gpu_t4"}',
    '{"vendor_id": "8086", "product_id": "0d5c", "name": "qat"}',
]


def cases() -> Iterator[Case]:
    """Return the cases, without what is expected of them."""
    yield from _properties()
    yield from _extra_hardware()


def _properties() -> Iterator[Case]:
    gpus = [pci("10de", "1eb8", 0), pci("10de", "1eb8", 1), pci("10de", "2236", 2), pci("8086", "1563", 3)]
    known = {"capabilities": "boot_mode:bios,rack:7,qat:2,cpu_vt:false", "cpus": 1, "note": "stays"}
    yield Case(
        name="accelerators",
        about="three GPUs, two of them of a counted kind, and a count of what was pulled",
        options={"pci_device_alias": _ALIASES},
        properties=known,
        body=body(pci_devices=gpus),
    )
    yield Case(name="accelerators-none", about="PCI devices, none of them known", body=body(pci_devices=gpus[3:]))
    yield Case(
        name="accelerators-of-the-bmc",
        about="the inventory itself tells of PCI devices",
        options={"pci_device_alias": _ALIASES},
        body=body({"pci_devices": gpus[:1]}),
    )
    same = [alias.replace("qat", "gpu_t4").replace("0d5c", "2236").replace("8086", "10de") for alias in _ALIASES]
    yield Case(
        name="pci-one-name-for-two",
        about="two kinds of devices are counted under one name",
        options={"pci_device_alias": same},
        body=body(pci_devices=gpus),
    )
    yield Case(
        name="pci-malformed",
        about="PCI devices without what they are looked up by",
        options={"pci_device_alias": _ALIASES},
        body=body(pci_devices=[gpus[0], {"vendor_id": "10de"}, "nonsense"]),
    )
    yield Case(
        name="capabilities-malformed",
        about="an operator wrote capabilities that are none",
        properties={"capabilities": "boot_mode:bios,rack"},
        body=body(),
    )
    yield Case(
        name="boot-mode-smuggles",
        about="a boot mode that would set another capability",
        body=body({"boot": {"current_boot_mode": "uefi,trusted:true", "pxe_interface": MAC.format(0)}}),
    )
    yield Case(
        name="cpu-capabilities-mapped",
        about="flags of one's own",
        options={"cpu_capabilities": {"sse2": "cpu_sse2", "avx512f": "cpu_avx512"}},
        body=body(),
    )


def _extra_hardware() -> Iterator[Case]:
    records: list[Any] = [
        ["cpu", "physical_0", "cores", "8"],
        ["cpu", "physical_0", "vendor", "Acme"],
        ["disk", "sda", "size", "480"],
        ["system", "product", "serial", "0042"],
        ["memory", "total", "size", 206158430208],
        ["network", "eth0", "speed", "10.5"],
    ]
    short = [*records, ["cpu"], ["disk", "sdb"], ["disk", "sdb", "size"], []]
    yield Case(name="extra-hardware", about="records of the collector", body=body(data=records))
    yield Case(name="extra-hardware-short", about="some records are too short", body=body(data=short))
    strict = {"extra_hardware_strict": True}
    yield Case(name="extra-hardware-short-strict", about="the same, strictly", options=strict, body=body(data=short))
    yield Case(name="extra-hardware-malformed", about="no list of records", body=body(data={"cpu": 8}))
    yield Case(
        name="extra-hardware-malformed-strict", about="the same, strictly", options=strict, body=body(data=["cpu"])
    )
    yield Case(
        name="extra-hardware-odd",
        about="names that are none",
        body=body(data=[[["a"], "b", "c", 1], ["a", "b", {}, 1], ["a", "b", "c", None]]),
    )
