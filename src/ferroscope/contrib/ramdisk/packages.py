"""The Debian packages of a ramdisk, and why each is there."""

from __future__ import annotations

import re
from typing import Final

from ferroscope.contrib.ramdisk.manifest import Arch
from ferroscope.contrib.ramdisk.mirrors import Mirrors
from ferroscope.contrib.ramdisk.plan import BuildPlan

# A system that starts, and gets addresses on all its NICs.
_SYSTEM: Final = (
    "systemd-sysv",
    "systemd-resolved",
    "systemd-timesyncd",
    "udev",
    "kmod",
    "iproute2",
    "netbase",
    "ca-certificates",
    "procps",
    "python3",
)
# What ironic-python-agent and its collectors call.
_AGENT: Final = (
    "dmidecode",
    "ethtool",
    "fdisk",
    "gdisk",
    "hdparm",
    "ipmitool",
    "lshw",
    "mdadm",
    "nvme-cli",
    "parted",
    "pciutils",
    "smartmontools",
    "usbutils",
)
# What collectors of ours call beside that.
_COLLECTORS: Final = ("memtester",)
# What ``hardware-detect`` calls, for the collector extra-hardware: its benchmarks of processors and memory.
_BENCHMARKS: Final = ("sysbench",)

# Debian's packages of firmware for NICs and HBAs. Only files that a module of the ramdisk asks for are kept.
_FIRMWARE: Final = (
    "firmware-bnx2",
    "firmware-bnx2x",
    "firmware-cavium",
    "firmware-linux-free",
    "firmware-misc-nonfree",
    "firmware-myricom",
    "firmware-netronome",
    "firmware-netxen",
    "firmware-qlogic",
    "firmware-realtek",
)

# Of these, single files are taken; they are not installed.
_BOOT: Final[dict[Arch, tuple[str, ...]]] = {
    "amd64": ("busybox-static", "shim-signed", "grub-efi-amd64-signed", "isolinux", "syslinux-common"),
    "arm64": ("busybox-static", "shim-signed", "grub-efi-arm64-signed"),
}


def installed_packages(plan: BuildPlan) -> list[str]:
    """Return what is installed into the ramdisk."""
    packages = [*_SYSTEM, *_AGENT, *_COLLECTORS, *_BENCHMARKS]
    if plan.firmware:
        packages += _FIRMWARE
    if plan.ssh_keys:
        packages.append("openssh-server")
    return list(dict.fromkeys([*packages, *plan.extra_packages]))


def kernel(plan: BuildPlan) -> str:
    """Return the package that depends on the newest kernel."""
    return f"linux-image-cloud-{plan.arch}" if plan.kernel == "cloud" else f"linux-image-{plan.arch}"


def boot(arch: Arch) -> tuple[str, ...]:
    """Return the packages that have the boot loaders, and the program of the first steps."""
    return _BOOT[arch]


def sources(plan: BuildPlan, mirrors: Mirrors, suite: str) -> list[str]:
    """Return the lines of apt's sources; of a directory as those of a mirror, whose files come into the new root."""
    components = "main non-free-firmware" if plan.firmware else "main"
    packages, security = (re.sub("^file:", "copy:", mirror) for mirror in (mirrors.packages, mirrors.security))
    return [
        f"deb {packages} {suite} {components}",
        f"deb {packages} {suite}-updates {components}",
        f"deb {security} {suite}-security {components}",
    ]


# Directories of kernel modules that no inspection needs: they are half of the generic kernel.
UNNEEDED_MODULES: Final = (
    "kernel/drivers/accessibility",
    "kernel/drivers/bluetooth",
    "kernel/drivers/comedi",
    "kernel/drivers/gpu",
    "kernel/drivers/iio",
    "kernel/drivers/input/joystick",
    "kernel/drivers/input/tablet",
    "kernel/drivers/input/touchscreen",
    "kernel/drivers/isdn",
    "kernel/drivers/leds",
    "kernel/drivers/media",
    "kernel/drivers/mmc",
    "kernel/drivers/mtd",
    "kernel/drivers/net/can",
    "kernel/drivers/net/ieee802154",
    "kernel/drivers/net/wireless",
    "kernel/drivers/net/wwan",
    "kernel/drivers/nfc",
    "kernel/drivers/parport",
    "kernel/drivers/pcmcia",
    "kernel/drivers/staging",
    "kernel/drivers/usb/gadget",
    "kernel/drivers/usb/misc",
    "kernel/drivers/usb/serial",
    "kernel/drivers/video",
    "kernel/drivers/w1",
    "kernel/fs/afs",
    "kernel/fs/bcachefs",
    "kernel/fs/btrfs",
    "kernel/fs/ceph",
    "kernel/fs/cifs",
    "kernel/fs/coda",
    "kernel/fs/gfs2",
    "kernel/fs/hfs",
    "kernel/fs/hfsplus",
    "kernel/fs/jfs",
    "kernel/fs/nfs",
    "kernel/fs/nfsd",
    "kernel/fs/ntfs3",
    "kernel/fs/ocfs2",
    "kernel/fs/orangefs",
    "kernel/fs/reiserfs",
    "kernel/fs/smb",
    "kernel/fs/smbfs_common",
    "kernel/fs/ubifs",
    "kernel/net/batman-adv",
    "kernel/net/bluetooth",
    "kernel/net/can",
    "kernel/net/ceph",
    "kernel/net/ieee802154",
    "kernel/net/mac80211",
    "kernel/net/nfc",
    "kernel/net/openvswitch",
    "kernel/net/sunrpc",
    "kernel/net/tipc",
    "kernel/net/wireless",
    "kernel/samples",
    "kernel/sound",
)
