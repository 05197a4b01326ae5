"""A machine as a server is: firmware, two NICs, an NVMe and a SATA disk, a TPM, IPMI inside, a serial console.

The first NIC is on the boot network; the second one is of another make, and on a network where nobody answers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from tests.support.boot import acceleration
from tests.support.boot.console import Console
from tests.support.boot.management import Management

_DOMAIN: Final = """\
<domain type='{kind}' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>
  <name>{name}</name>
  <uuid>{uuid}</uuid>
  <memory unit='MiB'>{memory}</memory>
  <vcpu>1</vcpu>
  <sysinfo type='smbios'>
    <bios><entry name='version'>2.19.1</entry></bios>
    <system>
      <entry name='manufacturer'>Contoso</entry>
      <entry name='product'>Model 5</entry>
      <entry name='serial'>serial-of-{name}</entry>
    </system>
  </sysinfo>
  <sysinfo type='fwcfg'>{knobs}</sysinfo>
  <os>
    <type arch='x86_64' machine='q35'>hvm</type>
    {firmware}
    <bios useserial='yes'/>
    <smbios mode='sysinfo'/>
  </os>
  <features><acpi/><apic/></features>
  <cpu {processor}>
  <on_poweroff>destroy</on_poweroff>
  <on_reboot>restart</on_reboot>
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
    <controller type='usb' model='qemu-xhci'/>
    <disk type='file' device='disk'>
      <driver name='qemu' type='raw'/>
      <source file='{sata}'/>
      <target dev='sda' bus='sata'/>
      <serial>SATA-of-{name}</serial>
    </disk>
    <interface type='ethernet'>
      <mac address='{mac}'/>
      <target dev='{tap}' managed='no'/>
      <model type='virtio'/>
      {rom}
    </interface>
    <interface type='ethernet'>
      <mac address='{spare}'/>
      <target dev='{spare_tap}' managed='no'/>
      <model type='e1000e'/>
      <rom enabled='no'/>
    </interface>
    <serial type='file'><source path='{console}' append='on'/></serial>
    <tpm model='tpm-tis'><backend type='emulator' version='2.0'/></tpm>
    <rng model='virtio'><backend model='random'>/dev/urandom</backend></rng>
  </devices>
  <qemu:commandline>
    <qemu:arg value='-drive'/>
    <qemu:arg value='file={nvme},if=none,format=raw,id=nvme'/>
    <qemu:arg value='-device'/>
    <qemu:arg value='nvme,drive=nvme,serial=NVME-of-{name},addr=0x1d'/>
    <qemu:arg value='-chardev'/>
    <qemu:arg value='socket,id=management,host=127.0.0.1,port={management},reconnect=1'/>
    <qemu:arg value='-device'/>
    <qemu:arg value='ipmi-bmc-extern,id=management0,chardev=management'/>
    <qemu:arg value='-device'/>
    <qemu:arg value='isa-ipmi-kcs,bmc=management0'/>
    {clock}
  </qemu:commandline>
</domain>
"""
_UEFI: Final = """\
<loader readonly='yes' secure='no' type='pflash'>/usr/share/OVMF/OVMF_CODE_4M.fd</loader>
    <nvram template='/usr/share/OVMF/OVMF_VARS_4M.fd'>{variables}</nvram>"""
# Knobs of OVMF, by which a test chooses among the ways to boot from the network.
_KNOB: Final = "<entry name='opt/org.tianocore/{name}'>{value}</entry>"
# Emulated, its clock counts instructions: on a busy host, time passes more slowly for it, and no timer is late.
_CLOCK: Final = "<qemu:arg value='-icount'/><qemu:arg value='shift=3'/>"
_GIB: Final = 1 << 30


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """``firmware``: ``uefi`` or ``bios``. ``knobs``: settings of the UEFI firmware."""

    name: str
    number: int
    directory: Path
    console: Console
    management: Management
    firmware: str = "uefi"
    memory: int = 1024
    knobs: dict[str, str] = {}

    @property
    def uuid(self) -> str:
        return f"5c0be000-0000-4000-8000-{self.number:012x}"

    @property
    def mac(self) -> str:
        """The first NIC's."""
        return f"52:54:00:b0:07:{self.number:02x}"

    @property
    def spare(self) -> str:
        """The second NIC's."""
        return f"52:54:00:b0:87:{self.number:02x}"

    @property
    def taps(self) -> tuple[str, str]:
        """The links of both NICs in the namespace."""
        return f"m{self.number}", f"m{self.number}-spare"

    def xml(self) -> str:
        """Make its disks, and return what libvirt makes it of."""
        disks = [self.directory / f"{self.name}.{kind}.img" for kind in ("sata", "nvme")]
        for disk, size in zip(disks, (8 * _GIB, 16 * _GIB), strict=True):
            with disk.open("wb") as file:
                file.truncate(size)
        uefi = self.firmware == "uefi"
        return _DOMAIN.format(
            kind=acceleration.kind(), name=self.name, uuid=self.uuid, memory=self.memory,
            processor="mode='host-passthrough'/" if acceleration.kind() == "kvm" else "mode='maximum'/",
            firmware=_UEFI.format(variables=self.directory / f"{self.name}.variables.fd") if uefi else "",
            knobs="".join(_KNOB.format(name=name, value=value) for name, value in self.knobs.items()),
            mac=self.mac, spare=self.spare, tap=self.taps[0], spare_tap=self.taps[1],
            rom="<rom enabled='no'/>" if uefi else "",  # OVMF has a network stack of its own
            console=self.console.path, management=self.management.port,
            clock=_CLOCK if acceleration.kind() == "qemu" else "", sata=disks[0], nvme=disks[1],
        )  # fmt: skip
