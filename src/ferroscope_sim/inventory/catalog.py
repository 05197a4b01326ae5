"""The hardware of simulated machines: models of several vendors, their CPUs, NICs, disks, switches.

Data only. Names and identifiers are those that such hardware reports; the combinations are not necessarily sold.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

BYTES_PER_GB: Final = 10**9


class Cpu(msgspec.Struct, frozen=True):
    """``flags`` are as in /proc/cpuinfo, ``mhz`` as the ramdisk reports it, both for one thread."""

    name: str
    maker: Literal["Intel", "AMD"]
    family: str
    socket: str
    cores: int
    mhz: str
    flags: tuple[str, ...]


class CatalogNic(msgspec.Struct, frozen=True):
    vendor: str
    product: str
    driver: str
    mbps: int


class Disk(msgspec.Struct, frozen=True):
    model: str
    vendor: str | None
    size: int
    rotational: bool
    transport: Literal["nvme", "sas", "sata"]


class Model(msgspec.Struct, frozen=True):
    """A server model. ``interface`` names a NIC; ``bmc_v6`` is what the ramdisk finds: an address, `::/0`, or nothing.

    ``disks`` are groups of at most so many of a kind, ``serial`` the alphabet and length of serial numbers.
    """

    manufacturer: str
    product: str
    serial: tuple[str, int]
    bios_vendor: str
    bios_version: str
    bios_date: str
    boot_mode: Literal["uefi", "bios"]
    cpu: Cpu
    sockets: int
    dimms: int
    dimm_gb: int
    dimm_maker: str
    dimm_part: str
    dimm_type: Literal["DDR4", "DDR5"]
    nics: tuple[CatalogNic, ...]
    interface: str
    disks: tuple[tuple[Disk, int], ...]
    bmc_v6: Literal["address", "unset", "none"]


class Switch(msgspec.Struct, frozen=True):
    description: str
    port: str


_COMMON: Final = (
    "fpu vme de pse tsc msr pae mce cx8 apic sep mtrr pge mca cmov pat pse36 clflush mmx fxsr sse sse2 ht syscall nx"
    " pdpe1gb rdtscp lm constant_tsc rep_good nopl nonstop_tsc cpuid aperfmperf pni pclmulqdq monitor ssse3 fma cx16"
    " pcid sse4_1 sse4_2 x2apic movbe popcnt aes xsave avx f16c rdrand lahf_lm abm 3dnowprefetch cpuid_fault cat_l3"
    " cdp_l3 ibrs ibpb stibp fsgsbase bmi1 avx2 smep bmi2 erms invpcid cqm rdt_a rdseed adx smap clflushopt clwb"
    " xsaveopt xsavec xgetbv1 xsaves cqm_llc cqm_occup_llc cqm_mbm_total cqm_mbm_local arat pku ospke"
)
_INTEL: Final = (
    "dts acpi ss tm pbe art arch_perfmon pebs bts xtopology dtes64 ds_cpl vmx smx est tm2 sdbg xtpr pdcm dca"
    " tsc_deadline_timer epb invpcid_single intel_ppin ssbd mba ibrs_enhanced tpr_shadow flexpriority ept vpid ept_ad"
    " tsc_adjust avx512f avx512dq intel_pt avx512cd avx512bw avx512vl dtherm ida pln pts hwp hwp_act_window hwp_epp"
    " hwp_pkg_req avx512_vnni md_clear flush_l1d arch_capabilities"
)
_AMD: Final = (
    "mmxext fxsr_opt amd_lbr_v2 extd_apicid rapl cmp_legacy svm extapic cr8_legacy sse4a misalignsse osvw ibs skinit"
    " wdt tce topoext perfctr_core perfctr_nb bpext perfctr_llc mwaitx cpb hw_pstate ssbd mba vmmcall sha_ni clzero"
    " irperf xsaveerptr rdpru wbnoinvd amd_ppin npt lbrv svm_lock nrip_save tsc_scale vmcb_clean flushbyasid"
    " decodeassists pausefilter pfthreshold v_vmsave_vmload vgif umip vaes vpclmulqdq rdpid overflow_recov succor smca"
)
_INTEL_FLAGS: Final = tuple(f"{_COMMON} {_INTEL}".split())
_AMD_FLAGS: Final = tuple(f"{_COMMON} {_AMD}".split())

_XEON_6240 = Cpu("Intel(R) Xeon(R) Gold 6240R CPU @ 2.40GHz", "Intel", "Xeon", "LGA3647", 24, "4000.0000", _INTEL_FLAGS)
_XEON_6338 = Cpu("Intel(R) Xeon(R) Gold 6338 CPU @ 2.00GHz", "Intel", "Xeon", "LGA4189", 32, "3200.0000", _INTEL_FLAGS)
_XEON_4314 = Cpu(
    "Intel(R) Xeon(R) Silver 4314 CPU @ 2.40GHz", "Intel", "Xeon", "LGA4189", 16, "3400.0000", _INTEL_FLAGS
)
_XEON_E = Cpu("Intel(R) Xeon(R) E-2336 CPU @ 2.90GHz", "Intel", "Xeon", "LGA1200", 6, "4800.0000", _INTEL_FLAGS)
_EPYC_7543 = Cpu("AMD EPYC 7543 32-Core Processor", "AMD", "Zen", "SP3", 32, "3737.8899", _AMD_FLAGS)
_EPYC_9124 = Cpu("AMD EPYC 9124 16-Core Processor", "AMD", "Zen", "SP5", 16, "3711.9141", _AMD_FLAGS)

_BCM5720 = CatalogNic("0x14e4", "0x165f", "tg3", 1000)
_BCM57414 = CatalogNic("0x14e4", "0x16d7", "bnxt_en", 25000)
_I350 = CatalogNic("0x8086", "0x1521", "igb", 1000)
_X550 = CatalogNic("0x8086", "0x1563", "ixgbe", 10000)
_E810 = CatalogNic("0x8086", "0x159b", "ice", 25000)
_CX5 = CatalogNic("0x15b3", "0x1017", "mlx5_core", 100000)
_CX6 = CatalogNic("0x15b3", "0x101d", "mlx5_core", 100000)

_BOSS = Disk("DELLBOSS VD", "ATA", 480 * BYTES_PER_GB, False, "sata")
_PM1733 = Disk("SAMSUNG MZWLR3T8HBLS-00007", None, 3840 * BYTES_PER_GB, False, "nvme")
_P5510 = Disk("INTEL SSDPF2KX038TZ", None, 3840 * BYTES_PER_GB, False, "nvme")
_MICRON = Disk("Micron_5300_MTFDDAK480TDS", "ATA", 480 * BYTES_PER_GB, False, "sata")
_EXOS = Disk("ST16000NM002G", "SEAGATE", 16000 * BYTES_PER_GB, True, "sas")
_ULTRASTAR = Disk("WUH721414AL5201", "HGST", 14000 * BYTES_PER_GB, True, "sas")
_SAS_SSD = Disk("MO001600JWZHQ", "HP", 1600 * BYTES_PER_GB, False, "sas")

_UPPER: Final = "0123456789ABCDEFGHJKLMNPQRSTUVWXYZ"

MODELS: Final = (
    Model(
        manufacturer="Dell Inc.",
        product="PowerEdge R650 (SKU=0912;ModelName=PowerEdge R650)",
        serial=(_UPPER, 7),
        bios_vendor="Dell Inc.",
        bios_version="1.13.2",
        bios_date="12/19/2023",
        boot_mode="uefi",
        cpu=_XEON_6338,
        sockets=2,
        dimms=16,
        dimm_gb=32,
        dimm_maker="00AD063200AD",
        dimm_part="HMA84GR7DJR4N-XN",
        dimm_type="DDR4",
        nics=(_BCM57414, _BCM5720, _CX6),
        interface="eno{card}{port}np{port}",
        disks=((_BOSS, 1), (_PM1733, 10)),
        bmc_v6="unset",
    ),
    Model(
        manufacturer="HPE",
        product="ProLiant DL380 Gen10 Plus",
        serial=(_UPPER, 10),
        bios_vendor="HPE",
        bios_version="U46",
        bios_date="03/11/2024",
        boot_mode="uefi",
        cpu=_XEON_4314,
        sockets=2,
        dimms=16,
        dimm_gb=16,
        dimm_maker="HPE",
        dimm_part="P06031-B21",
        dimm_type="DDR4",
        nics=(_CX5, _I350),
        interface="ens{card}f{port}np{port}",
        disks=((_SAS_SSD, 2), (_EXOS, 12)),
        bmc_v6="address",
    ),
    Model(
        manufacturer="Lenovo",
        product="ThinkSystem SR650 V2",
        serial=(_UPPER, 8),
        bios_vendor="Lenovo",
        bios_version="AFE138E-3.30",
        bios_date="07/09/2024",
        boot_mode="uefi",
        cpu=_XEON_6240,
        sockets=2,
        dimms=12,
        dimm_gb=32,
        dimm_maker="Samsung",
        dimm_part="M393A4K40DB3-CWE",
        dimm_type="DDR4",
        nics=(_E810, _X550),
        interface="ens{card}f{port}",
        disks=((_MICRON, 2), (_ULTRASTAR, 22)),
        bmc_v6="address",
    ),
    Model(
        manufacturer="Supermicro",
        product="AS -1115CS-TNR",
        serial=(_UPPER, 12),
        bios_vendor="American Megatrends International, LLC.",
        bios_version="1.6",
        bios_date="05/03/2024",
        boot_mode="uefi",
        cpu=_EPYC_9124,
        sockets=1,
        dimms=12,
        dimm_gb=16,
        dimm_maker="Micron Technology",
        dimm_part="MTC10F1084S1RC48BA1",
        dimm_type="DDR5",
        nics=(_X550, _CX6),
        interface="enp{card}s0f{port}",
        disks=((_P5510, 8),),
        bmc_v6="none",
    ),
    Model(
        manufacturer="Supermicro",
        product="AS -2024S-TR",
        serial=(_UPPER, 12),
        bios_vendor="American Megatrends Inc.",
        bios_version="2.5",
        bios_date="09/14/2022",
        boot_mode="bios",
        cpu=_EPYC_7543,
        sockets=2,
        dimms=16,
        dimm_gb=32,
        dimm_maker="SK Hynix",
        dimm_part="HMAA4GR7AJR8N-XN",
        dimm_type="DDR4",
        nics=(_X550, _CX5),
        interface="enp{card}s0f{port}",
        disks=((_MICRON, 2), (_EXOS, 4)),
        bmc_v6="none",
    ),
    Model(
        manufacturer="To Be Filled By O.E.M.",
        product="To Be Filled By O.E.M.",
        serial=("0", 8),
        bios_vendor="American Megatrends International, LLC.",
        bios_version="P1.40",
        bios_date="01/18/2023",
        boot_mode="bios",
        cpu=_XEON_E,
        sockets=1,
        dimms=4,
        dimm_gb=16,
        dimm_maker="Kingston",
        dimm_part="9965745-026.A00G",
        dimm_type="DDR4",
        nics=(_I350,),
        interface="eth{index}",
        disks=((_MICRON, 1),),
        bmc_v6="none",
    ),
)

SWITCHES: Final = (
    Switch(
        "Arista Networks EOS version 4.30.5M running on an Arista Networks DCS-7050SX3-48YC8",
        "Ethernet{port}",
    ),
    Switch(
        "Cisco Nexus Operating System (NX-OS) Software 10.2(5)\nTAC support: http://www.cisco.com/tac\n"
        "Copyright (c) 2002-2023, Cisco Systems, Inc. All rights reserved.",
        "Ethernet1/{port}",
    ),
    Switch(
        "Dell EMC Networking OS10 Enterprise.\r\nSystem Description: OS10 Enterprise.\r\nOS Version: 10.5.3.2.\r\n"
        "System Type: S5232F-ON",
        "ethernet1/1/{port}",
    ),
    Switch("Juniper Networks, Inc. qfx5120-48y-8c Ethernet Switch, kernel JUNOS 21.4R3", "xe-0/0/{port}"),
)

# vendor, product, class, revision: other PCI devices, which are repeated.
PCI_DEVICES: Final = (
    ("8086", "09a2", "088000", "04"),
    ("8086", "09a4", "088000", "04"),
    ("8086", "0998", "060000", "00"),
    ("8086", "344d", "088000", "05"),
    ("8086", "3446", "088000", "05"),
    ("8086", "347a", "060400", "06"),
    ("8086", "a1a4", "070002", "09"),
    ("8086", "a182", "010601", "09"),
    ("1022", "14a4", "060000", "01"),
    ("1022", "14ab", "060400", "01"),
    ("1022", "1480", "060000", "00"),
    ("102b", "0536", "030000", "04"),
    ("1a03", "2000", "030000", "41"),
    ("1000", "10e2", "010700", "00"),
    ("15b3", "101d", "020000", "00"),
    ("144d", "a824", "010802", "00"),
)
