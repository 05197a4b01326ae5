"""The cases: machines as they are met, and machines as nobody wants to meet them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.corpus import Case, disk_cases, lldp_cases, property_cases
from tests.corpus.machines import MAC, body, disk, lldp, many, nic, server

_MAP = ["192.0.2.0/24:rack-v4", "2001:db8::/64:rack-v6", "fe80::/10:link-local"]


def cases() -> Iterator[Case]:
    """Return all cases, without what is expected of them."""
    yield from _servers()
    yield from _interfaces()
    yield from _missing()
    yield from _ports()
    yield from lldp_cases.cases()
    yield from disk_cases.cases()
    yield from property_cases.cases()


def _servers() -> Iterator[Case]:
    settings: list[dict[str, Any]] = [
        {},
        {"add_ports": "all"},
        {"add_ports": "active"},
        {"add_ports": "disabled"},
        {"add_ports": "all", "keep_ports": "added"},
        {"add_ports": "all", "keep_ports": "present"},
        {"add_ports": "all", "physical_network_cidr_map": ["172.16.0.0/12:provisioning", *_MAP]},
        {"disk_partitioning_spacing": 0},
    ]
    for index, options in enumerate(settings):
        about = f"a simulated server of the kind {index}, with {options or 'the default options'}"
        yield Case(name=f"server-{index}", about=about, options=options, body=server(index))
    yield Case(name="vm", about="a virtual machine with one NIC, BIOS and no vendor", body=_vm())
    yield Case(name="arm", about="an ARM server, whose flags are none that we know", body=_arm())


def _vm() -> dict[str, Any]:
    return body(
        {
            "interfaces": [
                nic(0, name="ens3", vendor="0x1af4", product="0x0001", driver="virtio_net", speed_mbps=None)
            ],
            "disks": [disk("a", 20, name="/dev/vda", model="", vendor="0x1af4", serial=None, wwn=None, hctl=None)],
            "system_vendor": {"product_name": "KVM", "serial_number": "", "manufacturer": "QEMU"},
            "boot": {"current_boot_mode": "bios", "pxe_interface": MAC.format(0)},
            "bmc_address": "0.0.0.0",
        }
    )


def _arm() -> dict[str, Any]:
    cpu = {"architecture": "aarch64", "count": 80, "flags": ["fp", "asimd", "sha2"], "model_name": "Neoverse-N1"}
    return body({"cpu": cpu})


def _interfaces() -> Iterator[Case]:
    upper = MAC.format(0).upper()
    yield Case(
        name="mac-upper-case",
        about="a NIC whose MAC is in upper case, with LLDP and a mapped address",
        options={"physical_network_cidr_map": _MAP},
        body=body({"interfaces": [nic(0, mac_address=upper, lldp=lldp())]}),
    )
    yield Case(
        name="boot-mac-upper-case",
        about="the boot interface is named in upper case",
        body=body({"boot": {"current_boot_mode": "uefi", "pxe_interface": upper}}),
    )
    yield Case(
        name="boot-mac-pxelinux",
        about="the boot interface is named as pxelinux does",
        body=body({"boot": {"current_boot_mode": "bios", "pxe_interface": "01-" + MAC.format(0).replace(":", "-")}}),
    )
    yield Case(
        name="mac-pxelinux",
        about="the MAC of a NIC is written as pxelinux writes it",
        options={"add_ports": "all"},
        body=body({"interfaces": [nic(0), nic(1, mac_address="01-" + MAC.format(1).replace(":", "-"))]}),
    )
    yield Case(
        name="mac-bad",
        about="a NIC with a MAC that is none, and one without",
        options={"add_ports": "all"},
        body=body({"interfaces": [nic(0), nic(1, mac_address="nonsense"), nic(2, mac_address=None)]}),
    )
    yield Case(
        name="no-mac",
        about="no NIC has a MAC",
        body=body({"interfaces": [nic(0, mac_address=None), nic(1, mac_address="")]}),
    )
    yield Case(
        name="only-loopback",
        about="there is no interface but lo",
        body=body({"interfaces": [nic(0, name="lo", mac_address="00:00:00:00:00:00", ipv4_address="127.0.0.1")]}),
    )
    yield Case(name="no-interfaces", about="the list of interfaces is empty", body=body({"interfaces": []}))
    yield Case(
        name="no-name",
        about="an interface without a name",
        options={"add_ports": "all"},
        body=body({"interfaces": [nic(0), nic(1, name=None), nic(2, name="")]}),
    )
    yield Case(
        name="bond",
        about="a bond and its members share a MAC",
        options={"add_ports": "all"},
        body=body(
            {"interfaces": [nic(0), nic(1, mac_address=MAC.format(0)), nic(2, name="bond0", mac_address=MAC.format(0))]}
        ),
    )
    yield Case(
        name="infiniband",
        about="an InfiniBand port with its DHCP client id",
        body=body({"interfaces": [nic(0, client_id="ff:00:00:00:00:00:02:00:00:02:c9:00:7c:fe:90:03:00:29:26:52")]}),
    )
    yield Case(
        name="ipv6-only",
        about="a machine without IPv4, on a mapped network",
        options={"add_ports": "active", "physical_network_cidr_map": _MAP},
        body=body(
            {
                "interfaces": [
                    nic(0, ipv4_address=None, ipv6_address="2001:db8::5"),
                    nic(1, ipv4_address=None, ipv6_address=None),
                ]
            }
        ),
    )
    yield Case(
        name="three-hundred-nics",
        about="300 NICs, four of them with LLDP",
        options={"add_ports": "all", "physical_network_cidr_map": _MAP},
        body=body(
            {"interfaces": many(300), "boot": {"current_boot_mode": "uefi", "pxe_interface": "52:54:00:cc:00:00"}}
        ),
    )
    yield Case(
        name="name-as-long-as-a-body",
        about="an interface whose name fills the largest body that is accepted",
        options={"add_ports": "all"},
        body=body({"interfaces": [nic(0), nic(1)]}),
        enlarge=(["inventory", "interfaces", 1, "name"], 16 * 1024 * 1024 - 4096),
    )


def _missing() -> Iterator[Case]:
    for key in ("cpu", "memory", "disks", "interfaces"):
        yield Case(name=f"no-{key}-at-all", about=f"the inventory has no {key}", body=body({key: None}))
    yield Case(name="no-boot-at-all", about="the inventory has no boot", body=body({"boot": None}, boot_interface=None))
    yield Case(
        name="cpu-is-null", about="cpu is null", body={**body(), "inventory": {**body()["inventory"], "cpu": None}}
    )
    untold = body(boot_interface=None)
    yield Case(
        name="boot-is-null", about="boot is null", body={**untold, "inventory": {**untold["inventory"], "boot": None}}
    )
    cpu = body()["inventory"]["cpu"]
    yield Case(name="cpu-without-flags", about="the CPU has no flags", body=body({"cpu": {**cpu, "flags": None}}))
    yield Case(
        name="cpu-count-is-text", about="the number of CPUs is a text", body=body({"cpu": {**cpu, "count": "8"}})
    )
    yield Case(name="cpu-count-is-zero", about="the number of CPUs is 0", body=body({"cpu": {**cpu, "count": 0}}))
    yield Case(
        name="memory-without-physical", about="physical_mb is missing", body=body({"memory": {"total": 1 << 34}})
    )
    yield Case(name="ramdisk-error", about="the ramdisk reports an error", body=body(error="disk sda is on fire"))
    yield Case(
        name="no-boot-interface",
        about="which NIC booted is not told",
        body=body({"boot": {"current_boot_mode": "uefi"}}, boot_interface=None),
    )
    yield Case(
        name="boot-interface-of-the-ramdisk",
        about="which NIC booted is told outside of the inventory only, as pxelinux does",
        body=body({"boot": {"current_boot_mode": "bios"}}, boot_interface="01-" + MAC.format(1).replace(":", "-")),
    )


def _ports() -> Iterator[Case]:
    known = [{"address": MAC.format(0), "pxe_enabled": False}, {"address": MAC.format(9), "pxe_enabled": True}]
    for keep in ("all", "present", "added"):
        yield Case(
            name=f"known-ports-{keep}",
            about=f"the node has a port that the machine has not; keep_ports = {keep}",
            options={"keep_ports": keep},
            ports=known,
            body=body(),
        )
    yield Case(
        name="known-ports-left-alone",
        about="update_pxe_enabled = False",
        options={"update_pxe_enabled": False, "add_ports": "disabled"},
        ports=known,
        body=body(),
    )
    yield Case(
        name="new-ports-may-boot",
        about="update_pxe_enabled = False, and NICs without a port",
        options={"update_pxe_enabled": False, "add_ports": "all"},
        ports=known,
        body=body(),
    )
    yield Case(
        name="port-of-another-node",
        about="another node has the port of one of the machine's NICs, and both have LLDP",
        options={"add_ports": "all"},
        elsewhere=[MAC.format(1)],
        body=body({"interfaces": [nic(0, lldp=lldp()), nic(1, lldp=lldp(port="Ethernet8"))]}),
    )
    yield Case(
        name="physical-network-replaced",
        about="a port has a physical network, and the map says another",
        options={"physical_network_cidr_map": _MAP},
        ports=[{"address": MAC.format(0), "physical_network": "old", "local_link_connection": {"port_id": "by hand"}}],
        body=body({"interfaces": [nic(0, lldp=lldp())]}),
    )
