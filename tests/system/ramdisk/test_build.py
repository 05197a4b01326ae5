"""A ramdisk that was really built, from Debian's mirrors: what is in it, what is not, and that its files match."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from ferroscope.contrib.ramdisk import manifest
from ferroscope.contrib.ramdisk.manifest import Manifest
from ferroscope.contrib.ramdisk.plan import AGENT, names
from tests.support import ramdisk

_NAMES = names("ipa.kernel", "ipa.initramfs", "amd64")
# What the agent and its collectors call.
_PROGRAMS = (
    "lshw", "dmidecode", "ipmitool", "nvme", "mdadm", "smartctl", "ethtool", "lspci", "hdparm", "lsblk", "lsusb",
    "sgdisk", "parted", "udevadm", "ip", "journalctl", "sysbench", "memtester", "hardware-detect",
    "ironic-python-agent",
)  # fmt: skip


@pytest.fixture(scope="module")
def built() -> Path:
    """The smallest ramdisk, which is built once and kept."""
    return ramdisk.cached()


@pytest.fixture(scope="module")
def made(built: Path) -> Manifest:
    return manifest.read(built / _NAMES.manifest)


@pytest.fixture(scope="module")
def squashfs(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The system, taken out of the initramfs by another program than ours."""
    target = tmp_path_factory.mktemp("ramdisk")
    command = ["cpio", "--quiet", "-id", "--no-absolute-filenames", "-F", str(built / _NAMES.initramfs)]
    subprocess.run([*command, "root.squashfs", "init", "modules/*"], cwd=target, check=True)
    return target / "root.squashfs"


@pytest.fixture(scope="module")
def listing(squashfs: Path) -> set[str]:
    """All that is not a directory: apt's are there, and empty."""
    done = subprocess.run(["unsquashfs", "-ll", str(squashfs)], capture_output=True, text=True, check=True)
    return set(re.findall(r"^[^d\n]\S{9} .*? squashfs-root(/.*?)(?: -> .*)?$", done.stdout, re.MULTILINE))


def _content(squashfs: Path, path: str) -> str:
    done = subprocess.run(["unsquashfs", "-cat", str(squashfs), path], capture_output=True, text=True, check=True)
    return done.stdout


def test_all_files_are_those_of_the_manifest(built: Path, made: Manifest) -> None:
    assert set(made.files) == set(_NAMES.files)
    for name, wanted in made.files.items():
        assert manifest.digest(built / name) == wanted
    assert made.agent == AGENT
    assert not list(built.glob(".*"))


def test_every_program_that_the_agent_calls_is_there(listing: set[str]) -> None:
    found = {Path(name).name for name in listing if re.match(r"/usr/(local/)?s?bin/", name)}
    assert not set(_PROGRAMS) - found


def test_the_modules_are_those_of_the_kernel(built: Path, made: Manifest, listing: set[str], squashfs: Path) -> None:
    assert f"/usr/lib/modules/{made.kernel}/modules.dep" in listing
    assert made.kernel.encode() in (built / _NAMES.kernel).read_bytes()
    early = {path.name.partition("-")[2] for path in (squashfs.parent / "modules").iterdir()}
    assert early >= {"loop.ko", "squashfs.ko", "overlay.ko"}


def test_nothing_in_it_belongs_to_one_build_or_host(listing: set[str], squashfs: Path) -> None:
    assert _content(squashfs, "etc/machine-id") == ""
    assert not [
        name for name in listing if "ssh_host_" in name or name.endswith((".deb", "/nvme/hostid", "/nvme/hostnqn"))
    ]
    assert not [
        name for name in listing if name.startswith(("/etc/apt/", "/var/lib/apt/", "/var/cache/", "/.ferroscope"))
    ]
    assert not [name for name in listing if name.startswith("/var/log/")]


def test_the_agent_is_started_and_nobody_can_log_in(listing: set[str], squashfs: Path) -> None:
    wanted = "/etc/systemd/system/multi-user.target.wants/"
    assert f"{wanted}ferroscope-agent.service" in listing
    assert f"{wanted}systemd-networkd.service" in listing
    assert f"{wanted}ssh.service" not in listing
    passwords = dict(line.split(":")[:2] for line in _content(squashfs, "etc/shadow").splitlines())
    assert passwords["root"] == "*"
    assert set(passwords.values()) <= {"*", "!", "!*"}


def test_python_does_not_compile_the_agent_again(listing: set[str]) -> None:
    compiled = [name for name in listing if "/ironic_python_agent/__pycache__/" in name]
    assert compiled


def test_the_iso_boots_with_bios_and_uefi(built: Path, made: Manifest) -> None:
    command = ["xorriso", "-indev", str(built / _NAMES.iso), "-report_el_torito", "plain", "-find", "/", "-type", "f"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert re.search(r"El Torito boot img :.*BIOS", done.stdout)
    assert re.search(r"El Torito boot img :.*UEFI", done.stdout)
    assert "'/boot/initramfs'" in done.stdout
    assert "'/.disk/info'" in done.stdout


def test_it_is_small(made: Manifest) -> None:
    assert made.files[_NAMES.initramfs].size + made.files[_NAMES.kernel].size < 150_000_000
