"""The iPXE script: loads kernel and ramdisk from where it came from, and tells the ramdisk where to call back.

The same script serves every machine: it knows its own NIC, and the API finds the node by what the ramdisk sends.
Where a file does not come, the gate may just have moved to another host: the machine asks for an address again. With
DHCPv4 it is then told the new host's address (``next-server``), with DHCPv6 only the URL of the new host's script: it
goes on with that, and each host's script has its own address. The ramdisk's parameters are those that it gets by
virtual media too. Source: ipxe.org/cmd.
"""

from __future__ import annotations

from collections.abc import Iterator

from ferroscope.boot.addresses import literal, own
from ferroscope.config.settings import BootSettings, InspectorSettings
from ferroscope.domain.kernel_params import kernel_params


def script(settings: BootSettings, inspector: InspectorSettings, host: str) -> str:
    """Return the whole script of one boot host; ``AddressError``, ``PoolError``.

    ``inspector``: what ramdisks are told, whatever boots them.
    """
    mine = own(settings, host)
    return "\n".join(_lines(settings, inspector, literal(mine[6]) if 6 in mine else "")) + "\n"


def _lines(settings: BootSettings, inspector: InspectorSettings, host6: str) -> Iterator[str]:
    extra = " ".join([inspector.extra_kernel_params, *settings.kernel_options])
    told = kernel_params(settings.callback_url, extra=extra, collect_lldp=inspector.collect_lldp)
    yield "#!ipxe"
    yield "# Made by: ferroscope pxe config. Changes belong into [boot] and [inspector] of Ferroscope's configuration."
    # Another host's script goes on counting.
    yield from ("isset ${tries} || set tries:int32 0", "", ":again")
    if not settings.http_url:
        elsewhere = f"set base tftp://{host6}/" if host6 else "clear base"
        yield f"isset ${{next-server}} && set base tftp://${{next-server}}/ || {elsewhere}"
    ours = "initrd=ramdisk BOOTIF=01-${netX/mac:hexhyp}"
    yield f"kernel --name kernel {_place(settings, settings.kernel)} {ours} {told} || goto failed"
    yield f"initrd --name ramdisk {_place(settings, settings.ramdisk)} || goto failed"
    yield "boot || goto failed"
    yield from ("", ":failed", "imgfree", "inc tries")
    yield "iseq ${tries} 10 && goto give_up ||"
    yield "echo Kernel or ramdisk did not come; asking for another boot host"
    yield from ("sleep 3", "ifclose", "dhcp ||")
    if host6:
        yield "isset ${next-server} || chain --replace ${filename} ||"
    yield "goto again"
    yield from ("", ":give_up", "echo Giving up: the next boot device follows", "clear tries", "exit 1")


def _place(settings: BootSettings, file: str) -> str:
    """Return a file's URL: itself, over HTTP where that serves it, else over TFTP from the host that is open now."""
    if "://" in file:
        return file
    return f"{settings.http_url.rstrip('/')}/{file}" if settings.http_url else f"${{base}}{file}"
