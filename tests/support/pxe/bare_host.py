"""A host on which nothing is configured: its own network, and its own /etc, /var and /run, which end with the test.

What it writes lies over the files of the real host, which it does not change. systemd does not run there.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.service import executable
from ferroscope.config.load import SETUP_FILE
from tests.support.installation import Played
from tests.support.pxe import netns
from tests.support.pxe.lab import Lab

ADDRESS: Final = "10.77.0.11"
CONFIGURATION: Final = SETUP_FILE
_PREPARE: Final = """\
set -e
mount --make-rprivate /
mount -t tmpfs tmpfs {base}
for one in etc var; do
    mkdir {base}/$one {base}/$one.work
    mount -t overlay overlay -o lowerdir=/$one,upperdir={base}/$one,workdir={base}/$one.work /$one
done
mount -t tmpfs tmpfs /run
mkdir -p /etc/ferroscope /etc/dnsmasq.d /etc/nginx/conf.d /var/lib/ferroscope /var/lib/misc /var/log/nginx
rm -rf /etc/ferroscope/* /etc/nginx/conf.d/* /etc/dnsmasq.d/* /var/lib/ferroscope/*
echo ready
exec sleep infinity
"""


class BareHost:
    """``run`` runs a command on it, ``play`` a process; ``boot`` is its interface on the boot network."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self.space = netns.Netns(f"{id(lab) % 1000}-bare")
        lab.after(self.space.close)
        netns.connect(self.space, "boot", lab.wire, "bare")
        lab.plug("bare")
        self.space.ip("address", "add", f"{ADDRESS}/24", "dev", "boot")
        base = lab.directory / "bare"
        base.mkdir()
        holder = lab.play(
            "bare-host", [*self.space.prefix, "unshare", "--mount", "sh", "-c", _PREPARE.format(base=base)]
        )
        holder.wait_ready()
        self._enter: Sequence[str] = ("nsenter", "--target", str(holder.pid), "--mount", "--net")

    def run(self, *command: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run([*self._enter, *command], input=stdin, capture_output=True, text=True, check=False)

    def setup(self, *words: str, stdin: str = "", before: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
        """Run ``ferroscope setup --boot network`` there; ``before``: what it runs under."""
        return self.run(*before, executable(), "setup", "--boot", "network", *words, stdin=stdin)

    def play(self, name: str, *command: str) -> Played:
        return self._lab.play(name, [*self._enter, *command])

    def read(self, path: str | Path) -> str:
        """Return the text of a file there; "" if it does not exist."""
        return self.run("cat", str(path)).stdout

    def write(self, path: str | Path, text: str, mode: str = "644") -> None:
        self.run("sh", "-c", f"cat > {path} && chmod {mode} {path}", stdin=text)
