"""The iPXE script: loads kernel and ramdisk from where it came from, and tells the ramdisk where to call back.

The same script serves every machine: it knows its own NIC, and the API finds the node by what the ramdisk sends.
Where a file does not come, the filter may just have moved to another host: the machine asks for an address again. With
DHCPv4 it is then told the new host's address (``next-server``), with DHCPv6 only the URL of the new host's script: it
goes on with that, and each host's script has its own address. The ramdisk's parameters are those that it gets by
virtual media too. Source: ipxe.org/cmd.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ferroscope.boot_config.dnsmasq import HOST, base_url, literal, own
from ferroscope.config.options import BootSettings, InspectorSettings
from ferroscope.core.boot import kernel_params


def script(settings: BootSettings, inspector: InspectorSettings, host: str) -> str:
    """Return the whole script of one boot host; ``AddressError``, ``PoolError``.

    ``inspector``: what ramdisks are told, whatever boots them.
    """
    mine = own(settings, host)
    return "\n".join(_lines(settings, inspector, {version: literal(one) for version, one in mine.items()})) + "\n"


def _lines(settings: BootSettings, inspector: InspectorSettings, mine: Mapping[int, str]) -> Iterator[str]:
    extra = " ".join([inspector.extra_kernel_params, *settings.kernel_options])
    told = kernel_params(settings.callback_url, extra=extra, collect_lldp=inspector.collect_lldp)
    yield "#!ipxe"
    yield "# Made by: ferroscope pxe config. Changes belong into [boot] and [inspector] of Ferroscope's configuration."
    # Another host's script goes on counting.
    yield from ("isset ${tries} || set tries:int32 0", "", ":again")
    if _follows(settings):
        here = mine.get(6) or mine.get(4)
        otherwise = f"set base {_base(settings, here)}" if here else "clear base"
        yield f"isset ${{next-server}} && set base {_base(settings, '${next-server}')} || {otherwise}"
    ours = "initrd=ramdisk BOOTIF=01-${netX/mac:hexhyp}"
    yield f"kernel --name kernel {_place(settings, settings.kernel)} {ours} {told} || goto failed"
    yield f"initrd --name ramdisk {_place(settings, settings.ramdisk)} || goto failed"
    yield "boot || goto failed"
    yield from ("", ":failed", "imgfree", "inc tries")
    yield "iseq ${tries} 10 && goto give_up ||"
    yield "echo Kernel or ramdisk did not come; asking for another boot host"
    yield from ("sleep 3", "ifclose", "dhcp ||")
    if _follows(settings) and 6 in mine:
        yield "isset ${next-server} || chain --replace ${filename} ||"
    yield "goto again"
    yield from ("", ":give_up", "echo Giving up: the next boot device follows", "clear tries", "exit 1")


def _follows(settings: BootSettings) -> bool:
    """Whether a machine loads from the boot host that is open now; else all load from one web server."""
    return not settings.http_url or HOST in settings.http_url


def _base(settings: BootSettings, host: str) -> str:
    return (base_url(settings, host) or f"tftp://{host}") + "/"


def _place(settings: BootSettings, file: str) -> str:
    """Return a file's URL: itself, or where the boot files are."""
    if "://" in file:
        return file
    return f"${{base}}{file}" if _follows(settings) else f"{_base(settings, '')}{file}"
