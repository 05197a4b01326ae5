"""A ramdisk much smaller than the real one: busybox, a virtio NIC's drivers, and one script.

It boots on a virtual machine, asks for its address through the filter, collects what /proc and /sys say, posts that in
the form of ironic-python-agent's inventory, and waits to be powered off. Nothing in it is made up.
"""

from __future__ import annotations

import gzip
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from tests import ROOT

_KERNEL: Final = ROOT / ".boot-kernel"
# In the order in which the kernel takes them.
_MODULES: Final = (
    "virtio_ring", "virtio", "virtio_pci_legacy_dev", "virtio_pci_modern_dev", "virtio_pci",
    "failover", "net_failover", "virtio_net",
)  # fmt: skip
_PLACES: Final = ("bin", "dev", "proc", "sys", "tmp", "etc", "lib")

_INIT: Final = r"""#!/bin/sh
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
for module in %(modules)s; do insmod /lib/$module.ko; done

# What the boot loader said.
for word in $(cat /proc/cmdline); do
    case $word in
        BOOTIF=01-*) bootif=$(echo "${word#BOOTIF=01-}" | tr - : | tr A-F a-f) ;;
        ipa-inspection-callback-url=*) url=${word#*=} ;;
    esac
done
echo "ramdisk: booted from $bootif, calls back to $url"

for try in 1 2 3 4 5 6 7 8 9 10; do
    for place in /sys/class/net/*; do
        [ "$(cat $place/address)" = "$bootif" ] && nic=${place##*/}
    done
    [ -n "$nic" ] && break
    sleep 1
done
[ -n "$nic" ] || { echo "ramdisk: there is no NIC with the MAC $bootif"; while :; do sleep 60; done; }
ip link set lo up
for place in /sys/class/net/*; do ip link set ${place##*/} up; done
until udhcpc -i "$nic" -n -q -t 5 -T 1 -A 1 -s /bin/lease; do echo "ramdisk: no address"; done

text() { cat "$1" 2>/dev/null | tr -d '"\\' | head -n 1; }
dmi() { text /sys/class/dmi/id/$1; }
interfaces() {
    local separator=
    for place in /sys/class/net/*; do
        name=${place##*/}
        [ "$name" = lo ] && continue
        address=$(ip -4 -o address show dev "$name" | awk '{ sub("/.*", "", $4); print $4 }')
        [ "$(text $place/carrier)" = 1 ] && carrier=true || carrier=false
        printf '%%s{"name": "%%s", "mac_address": "%%s", ' "$separator" "$name" "$(text $place/address)"
        printf '"ipv4_address": %%s, ' "$([ -n "$address" ] && echo "\"$address\"" || echo null)"
        printf '"has_carrier": %%s, ' "$carrier"
        printf '"vendor": "%%s", "product": "%%s"}' "$(text $place/device/vendor)" "$(text $place/device/device)"
        separator=', '
    done
}
kib=$(awk '/^MemTotal:/ { print $2 }' /proc/meminfo)
# What is built in, in blocks; what the kernel left of it where it does not tell.
blocks=$(grep -l 1 /sys/devices/system/memory/memory*/online 2>/dev/null | wc -l)
size=$(cat /sys/devices/system/memory/block_size_bytes 2>/dev/null || echo 0)
mib=$((0x$size * blocks / 1048576))
[ "$mib" -gt 0 ] || mib=$(((kib + 1023) / 1024))
model=$(awk -F': ' '/^model name/ { print $2; exit }' /proc/cpuinfo | tr -d '"\\')
flags=$(awk -F': ' '/^flags/ { print $2; exit }' /proc/cpuinfo | sed 's/ *$//; s/[^ ][^ ]*/"&"/g; s/ /, /g')
[ -d /sys/firmware/efi ] && mode=uefi || mode=bios
cat >/tmp/inventory <<END
{"inventory": {
  "interfaces": [$(interfaces)],
  "cpu": {"model_name": "$model", "count": $(grep -c ^processor /proc/cpuinfo),
    "architecture": "$(uname -m)", "flags": [$flags]},
  "memory": {"total": $((kib * 1024)), "physical_mb": $mib},
  "disks": [],
  "bmc_address": null,
  "system_vendor": {"manufacturer": "$(dmi sys_vendor)", "product_name": "$(dmi product_name)",
    "serial_number": "$(dmi product_serial)"},
  "boot": {"current_boot_mode": "$mode", "pxe_interface": "$bootif"},
  "hostname": "$(hostname)"
}, "collectors": ["busybox"]}
END

until wget -q -O /tmp/answer --header 'Content-Type: application/json' --post-file /tmp/inventory "$url"; do
    echo "ramdisk: the callback failed; the next try is in 2 seconds"
    sleep 2
done
echo "ramdisk: called back"
while :; do sleep 60; done
"""

_LEASE: Final = """#!/bin/sh
[ "$1" = bound ] || exit 0
ip address flush dev "$interface"
ip address add "$ip/${mask:-24}" dev "$interface"
[ -z "$router" ] || ip route add default via "$router"
echo "ramdisk: has $ip from $serverid"
"""


def kernel() -> Path:
    """Return the kernel to boot; an error that says how to get it where there is none."""
    found = _KERNEL / "vmlinuz"
    if not found.exists():
        raise RuntimeError(f"{found} is missing; run: make pxe")
    return found


def build(target: Path, work: Path) -> None:
    """Write the ramdisk to ``target``; ``work`` is an empty directory for its tree."""
    kernel()
    busybox = shutil.which("busybox")
    if busybox is None:
        raise RuntimeError("busybox is missing; run: make pxe")
    for name in _PLACES:
        (work / name).mkdir(parents=True)
    shutil.copy(busybox, work / "bin" / "busybox")
    # Many hosts have the one that is not static, and Debian keeps only one of both.
    linked = subprocess.run(["ldd", busybox], capture_output=True, text=True, check=False).stdout
    for library in re.findall(r"/\S+(?= \()", linked):
        (work / library[1:]).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, work / library[1:])
    applets = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split()
    for applet in set(applets) - {"busybox"}:
        (work / "bin" / applet).symlink_to("busybox")
    for module in _MODULES:
        shutil.copy(_KERNEL / f"{module}.ko", work / "lib")
    _program(work / "init", _INIT % {"modules": " ".join(_MODULES)})
    _program(work / "bin" / "lease", _LEASE)
    names = "\n".join(str(path.relative_to(work)) for path in [work, *sorted(work.rglob("*"))])
    packed = subprocess.run(
        ["cpio", "--create", "--format=newc", "--quiet", "--owner=0:0"], input=names.encode(), cwd=work,
        capture_output=True, check=True,
    )  # fmt: skip
    target.write_bytes(gzip.compress(packed.stdout, 6))


def _program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)
