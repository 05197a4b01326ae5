"""A libvirt of one test: its daemon, its files and its machines are in a namespace and a directory of their own.

Debian's libvirtd wants fixed directories and users; in a mount namespace, they are the test's. It needs root, and no
systemd, no D-Bus and no service of the host. Source: libvirt.org/daemons.html, qemu.conf.
"""

from __future__ import annotations

import shlex
import subprocess
from typing import Final

from tests.support.installation import Installation
from tests.support.pxe.netns import Netns

_PLACES: Final = (
    "etc/libvirt",
    "var/lib/libvirt",
    "var/cache/libvirt",
    "var/log/libvirt",
    "var/log/swtpm",
    "run/libvirt",
)
_DAEMON: Final = """\
unix_sock_dir = "{directory}"
auth_unix_ro = "none"
auth_unix_rw = "none"
host_uuid = "5c0be000-ffff-4000-8000-000000000000"
log_outputs = "3:stderr"
"""
# Everything as root and without confinement: the machines are ours, and end with the test.
_QEMU: Final = """\
user = "root"
group = "root"
swtpm_user = "root"
swtpm_group = "root"
dynamic_ownership = 0
remember_owner = 0
security_driver = "none"
cgroup_controllers = []
namespaces = []
stdio_handler = "file"
"""
# libvirtd does not start where this user is unknown.
_USER: Final = "libvirt-qemu"
_START: Final = """\
set -e
cd {directory}
mount --make-rprivate /
for file in passwd group; do
    cp /etc/$file $file
    grep -q ^{user}: $file || echo {user}:x:64055:64055::/nonexistent:/usr/sbin/nologin | cut -d: -f "$(
        [ $file = passwd ] && echo 1-7 || echo 1-3)" >>$file
    mount --bind $file /etc/$file
done
for place in {places}; do
    mkdir -p $place /$place
    mount --bind $place /$place
done
cp qemu.conf /etc/libvirt/qemu.conf
exec libvirtd --config libvirtd.conf --pid-file libvirtd.pid
"""
POOL: Final = "media"
_POOL: Final = "<pool type='dir'><name>{name}</name><target><path>{path}</path></target></pool>"


class Hypervisor:
    """``uri`` is libvirt's; machines find the links of ``space``."""

    def __init__(self, site: Installation, space: Netns) -> None:
        self.directory = site.directory / "libvirt"
        self.directory.mkdir()
        (self.directory / "libvirtd.conf").write_text(_DAEMON.format(directory=self.directory))
        (self.directory / "qemu.conf").write_text(_QEMU)
        script = _START.format(directory=shlex.quote(str(self.directory)), places=" ".join(_PLACES), user=_USER)
        socket = self.directory / "libvirt-sock"
        self.uri = f"qemu+unix:///system?socket={socket}"
        daemon = site.play("libvirtd", [*space.prefix, "unshare", "--mount", "sh", "-c", script])
        daemon.wait_until(self._answers)
        self._make_pool()

    def define(self, xml: str) -> None:
        """Make a machine, switched off."""
        self._defined("define", xml)

    def virsh(self, *words: str) -> str:
        """Run ``virsh``; return what it printed, ``RuntimeError`` where it fails."""
        done = subprocess.run(["virsh", "-q", "-c", self.uri, *words], capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"virsh {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout

    def is_on(self, name: str) -> bool:
        return self.virsh("domstate", name).strip() != "shut off"

    def _answers(self) -> bool:
        return subprocess.run(["virsh", "-q", "-c", self.uri, "uri"], capture_output=True, check=False).returncode == 0

    def _make_pool(self) -> None:
        """Make the directory into which the BMC puts images."""
        place = self.directory / POOL
        place.mkdir()
        self._defined("pool-define", _POOL.format(name=POOL, path=place))
        self.virsh("pool-start", POOL)

    def _defined(self, how: str, xml: str) -> None:
        file = self.directory / "defined.xml"
        file.write_text(xml)
        self.virsh(how, str(file))
