"""A Debian that has booted: systemd is its first process, in namespaces and a control group of its own.

It needs neither a virtual machine nor a container engine, and a host's systemd neither; only root. It cannot set the
clock, load modules, or reach any network.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

from tests.support.processes import die_with_parent, until
from tests.support.speed import slowness

_NAMESPACES: Final = ("--pid", "--mount", "--net", "--uts", "--ipc", "--cgroup")
_DENIED: Final = "-sys_time,-sys_module,-sys_rawio,-syslog"
_ENVIRONMENT: Final = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
# What systemd's "Container Interface" asks of a container manager: it may not write to /sys and /proc/sys.
_START: Final = """\
root=$1
mount --make-rprivate /
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --bind "$root/proc/sys" "$root/proc/sys"
mount -o remount,bind,ro "$root/proc/sys"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for name in null zero full random urandom tty; do
    touch "$root/dev/$name"
    mount --bind "/dev/$name" "$root/dev/$name"
done
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=666 devpts "$root/dev/pts"
mount -t tmpfs tmpfs "$root/dev/shm"
ln -s pts/ptmx "$root/dev/ptmx"
ip link set lo up
cd "$root"
exec env -i container=test PATH=/usr/sbin:/usr/bin:/sbin:/bin \\
    setpriv --bounding-set=DENIED chroot . /sbin/init --show-status=0 --log-target=null
""".replace("DENIED", _DENIED)


def make(path: Path, suite: str, *packages: str, later: tuple[str, ...] = ()) -> None:
    """Make a Debian with systemd and these packages, and what they depend on, in a directory.

    ``later``: packages that its apt can install when it runs, although it reaches no mirror then.
    """
    wanted = ",".join(("systemd-sysv", "dbus", *packages))
    fetch = f'chroot "$1" apt-get -q --yes -o APT::Install-Recommends=1 --download-only install {" ".join(later)}'
    # In a namespace of its own: if it is killed, nothing of this system stays mounted in what is then removed.
    command = [
        "unshare",
        "--mount",
        "mmdebstrap",
        "--quiet",
        "--variant=minbase",
        *(f"--aptopt={option}" for option in _options_of_apt()),
        f"--include={wanted}",
        *(("--skip=cleanup/apt", f"--customize-hook={fetch}") if later else ()),
        suite,
        str(path),
    ]
    subprocess.run(command, check=True, timeout=1800 * slowness())
    # It is thrown away: no file of a package has to be on the disk.
    (path / "etc/dpkg/dpkg.cfg.d/unsafe-io").write_text("force-unsafe-io\n")
    for unit in ("console-getty", "systemd-logind", "openipmi"):  # openipmi loads modules of the kernel
        (path / f"etc/systemd/system/{unit}.service").symlink_to("/dev/null")


def _options_of_apt() -> list[str]:
    """Return whether this system's apt accepts lists of packages that are too old, as copies of a mirror are."""
    command = ["apt-config", "dump", "--format", '%f "%v";%n', "Acquire::Check-Valid-Until", "Acquire::Check-Date"]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()


class Debian:
    """One that runs while it is entered."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._group = _hierarchy() / f"ferroscope-debian-{os.getpid()}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start it; return when all its units have started."""
        self._group.mkdir()
        enter = f"echo $$ > {self._group}/cgroup.procs; exec unshare {' '.join(_NAMESPACES)} --fork --kill-child"
        self._outer = subprocess.Popen(
            ["sh", "-c", f'{enter} sh -ec "$0" sh "$1"', _START, str(self.root)],
            stdin=subprocess.DEVNULL, preexec_fn=die_with_parent,
        )  # fmt: skip
        if not until(lambda: self.has_booted()):
            raise RuntimeError(f"the Debian in {self.root} did not boot: {self.call('systemctl', '--failed').stdout}")

    def stop(self) -> None:
        """Take its power away."""
        self._outer.send_signal(signal.SIGKILL)  # unshare kills its child, and that is the last process there
        self._outer.wait()
        until(lambda: "populated 0" in (self._group / "cgroup.events").read_text())
        for directory, _below, _files in list(os.walk(self._group, topdown=False)):
            with contextlib.suppress(FileNotFoundError):
                Path(directory).rmdir()

    def has_booted(self) -> bool:
        if self._outer.poll() is not None:
            raise RuntimeError(f"the first process of {self.root} has ended with {self._outer.returncode}")
        return self._init() is not None and self.call("systemctl", "is-system-running").stdout.strip() == "running"

    def call(self, *words: str, patience: float = 600.0) -> subprocess.CompletedProcess[str]:
        """Run a program in it; return what it said and its exit code."""
        return subprocess.run(
            self._command(words), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            check=False, env=_ENVIRONMENT, timeout=patience * slowness(),
        )  # fmt: skip

    def _command(self, words: Sequence[str]) -> list[str]:
        flags = ("--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--root", "--wdns=/")
        return ["nsenter", f"--target={self._init()}", *flags, *words]

    def run(self, *words: str, patience: float = 600.0) -> str:
        """Run a program in it that must succeed; return what it said."""
        done = self.call(*words, patience=patience)
        assert done.returncode == 0, f"{' '.join(words)}: {done.stdout}\n{self._journal()}"
        return done.stdout

    def install(self, *packages: Path) -> None:
        """Install package files with dpkg, as ``apt install ./FILE`` would."""
        self.run("dpkg", "--install", *self.copied(*packages))

    def copied(self, *files: Path) -> list[str]:
        """Copy files there; return where they are."""
        return [f"/{Path(shutil.copy(one, self.root / 'var/tmp')).relative_to(self.root)}" for one in files]

    def on_terminal(self, answers: Sequence[tuple[str, str]], *words: str) -> tuple[int, str]:
        """Run a program in it on a terminal, and type each answer when its question appears; return as of ``call``."""
        ours, theirs = os.openpty()
        with subprocess.Popen(
            self._command(words), stdin=theirs, stdout=theirs, stderr=theirs, env=_ENVIRONMENT
        ) as run:
            os.close(theirs)
            seen, asked, left = "", 0, list(answers)
            with contextlib.suppress(OSError):  # its other end is closed
                while some := os.read(ours, 4096):
                    seen += some.decode(errors="replace")
                    if left and (at := seen.find(left[0][0], asked)) >= 0:
                        asked = at + len(left[0][0])
                        os.write(ours, f"{left.pop(0)[1]}\n".encode())
        os.close(ours)
        assert not left, f"{words} did not ask {left[0][0]!r}:\n{seen}"
        return run.returncode, seen.replace("\r\n", "\n")

    def _journal(self) -> str:
        return self.call("journalctl", "--no-pager", "--lines=40").stdout

    def _init(self) -> int | None:
        """Return the process number of its systemd, as this system sees it."""
        try:
            children = Path(f"/proc/{self._outer.pid}/task/{self._outer.pid}/children").read_text().split()
            program = Path(f"/proc/{children[0]}/exe").resolve()
        except (OSError, IndexError):
            return None
        return int(children[0]) if program.name == "systemd" else None


def _hierarchy() -> Path:
    """Return where the control groups of version 2 are, and this process's among them."""
    for line in Path("/proc/mounts").read_text().splitlines():
        _, place, kind, *_ = line.split()
        if kind == "cgroup2":
            own = next(one[3:] for one in Path("/proc/self/cgroup").read_text().splitlines() if one.startswith("0::"))
            return Path(place + own.rstrip("/"))
    raise RuntimeError("no cgroup2 is mounted on this system, and systemd needs one")
