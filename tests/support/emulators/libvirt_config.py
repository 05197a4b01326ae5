# The configuration of sushy-emulator with its libvirt driver, which is Python; the emulator's own interpreter reads it.
#
# It gets libvirt from Debian's python3-libvirt. Its floppy drive is behind a floppy controller, which no BMC has, and
# which ironic-python-agent does not take for a virtual drive; here it is a USB stick, as with BMCs.
import json
import os
import sys
import xml.etree.ElementTree as ET

BMC = json.loads(os.environ["BMC"])
sys.path.append("/usr/lib/python3/dist-packages")

import libvirt  # noqa: E402
from sushy_tools.emulator.resources.systems import libvirtdriver  # noqa: E402

libvirtdriver.libvirt, libvirtdriver.is_loaded = libvirt, True

SUSHY_EMULATOR_LIBVIRT_URI = BMC["uri"]
SUSHY_EMULATOR_STATE_DIR = BMC["state"]
SUSHY_EMULATOR_AUTH_FILE = BMC["auth"]
SUSHY_EMULATOR_LISTEN_IP = BMC["address"]
SUSHY_EMULATOR_STORAGE_POOL = BMC["pool"]
SUSHY_EMULATOR_BOOT_LOADER_MAP = {
    "UEFI": {"x86_64": "/usr/share/OVMF/OVMF_CODE_4M.fd"},
    "Legacy": {"x86_64": None},
}
SUSHY_EMULATOR_SECURE_BOOT_DISABLED_NVRAM = "/usr/share/OVMF/OVMF_VARS_4M.fd"

_LIBVIRT_ADD = libvirtdriver.LibvirtDriver._add_boot_image
_LIBVIRT_REMOVE = libvirtdriver.LibvirtDriver._remove_boot_images
_STICK = "sdz"


def _add(self, domain, tree, device, image, write_protected):
    if device != "Floppy":
        return _LIBVIRT_ADD(self, domain, tree, device, image, write_protected)
    with libvirtdriver.libvirt_open(self._uri) as connection:
        path = self._upload_image(domain, connection, image)
    disk = ET.SubElement(tree.find("devices"), "disk", type="file", device="disk")
    ET.SubElement(disk, "driver", name="qemu", type="raw")
    ET.SubElement(disk, "source", file=path)
    ET.SubElement(disk, "target", dev=_STICK, bus="usb", removable="on")
    if write_protected:
        ET.SubElement(disk, "readonly")
    return None


def _remove(self, domain, tree, device):
    if device != "Floppy":
        return _LIBVIRT_REMOVE(self, domain, tree, device)
    devices = tree.find("devices")
    for disk in devices.findall("disk"):
        if disk.find("target").get("dev") == _STICK:
            devices.remove(disk)
    return None


libvirtdriver.LibvirtDriver._add_boot_image = _add
libvirtdriver.LibvirtDriver._remove_boot_images = _remove
