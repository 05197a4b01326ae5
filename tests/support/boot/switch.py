"""The switch that the machines are plugged into, as far as they see one: it says over LLDP which port each link is.

That is done by lldpd on the switch's side of the links, as on a switch with Linux.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tests.support.installation import Installation
from tests.support.pxe.netns import Netns

NAME: Final = "leaf-1"
_CONFIGURATION: Final = f"""\
configure system hostname {NAME}
configure lldp portidsubtype ifname
configure lldp tx-interval 1
"""
# Debian's lldpd is confined to this directory, as a user of its own, who has to read the configuration.
_START: Final = """\
set -e
mount --make-rprivate /
mkdir -p /run/lldpd
mount -t tmpfs none /run/lldpd
cp {configuration} /run/lldpd/lldpd.conf
exec lldpd -d -u /run/lldpd/socket -O /run/lldpd/lldpd.conf -C none -I {links}
"""


def announce(site: Installation, space: Netns, links: Sequence[str]) -> None:
    """Have the links announced once a second, by their names, until the end of the site."""
    configuration = site.directory / f"{links[0]}.lldp.conf"
    configuration.write_text(_CONFIGURATION)
    script = _START.format(configuration=configuration, links=",".join(links))
    daemon = site.play(f"lldpd-{links[0]}", [*space.prefix, "unshare", "--mount", "sh", "-c", script])
    daemon.wait_ready("should resume")
