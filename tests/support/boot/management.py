"""The management controller in a machine, as its operating system sees it: OpenIPMI's ipmi_sim behind QEMU's KCS.

It only says what the agent asks: which addresses it has. Power is for the Redfish service (``bmc``). Source:
ipmi_lan(5), ipmi_sim(1); QEMU's ipmi-bmc-extern.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tests.support.installation import Installation
from tests.support.processes import free_port
from tests.support.pxe.netns import Netns

_CONFIGURATION: Final = """\
name "management"
set_working_mc 0x20
startlan 1
addr {address} {port}
lan_config_program "{directory}/lan"
endlan
serial 15 127.0.0.1 {serial} codec VM
"""
_COMMANDS: Final = """\
mc_setbmc 0x20
mc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr
mc_enable 0x20
"""
# It is called as: lan get NAME...
_LAN: Final = """\
#!/bin/sh
shift
for name; do
    case $name in
        ip_addr_src) echo ip_addr_src:static ;;
        ip_addr) echo ip_addr:{address} ;;
        subnet_mask) echo subnet_mask:255.255.255.0 ;;
        mac_addr) echo mac_addr:{mac} ;;
        *_ip_addr) echo $name:0.0.0.0 ;;
        *_mac_addr) echo $name:00:00:00:00:00:00 ;;
    esac
done
"""


class Management(msgspec.Struct, frozen=True):
    """Its address and MAC on the network, and the port on which QEMU finds it."""

    address: str
    mac: str
    port: int


def management(site: Installation, space: Netns, name: str, address: str, mac: str) -> Management:
    """Start one; ``address`` is an address of the namespace."""
    directory = site.directory / f"{name}-management"
    (directory / "state").mkdir(parents=True)
    serial = free_port()
    lan = directory / "lan"
    lan.write_text(_LAN.format(address=address, mac=mac))
    lan.chmod(0o755)
    configuration, commands = directory / "lan.conf", directory / "commands.emu"
    configuration.write_text(
        _CONFIGURATION.format(address=address, port=free_port(), directory=directory, serial=serial)
    )
    commands.write_text(_COMMANDS)
    program = ["ipmi_sim", "-c", str(configuration), "-f", str(commands), "-s", str(directory / "state"), "-n"]
    running = site.play(f"{name}-management", [*space.prefix, *program])
    running.wait_until(lambda: _listens(space, serial))
    return Management(address, mac, serial)


def _listens(space: Netns, port: int) -> bool:
    return f":{port} " in space.run("ss", "-ltn").stdout
