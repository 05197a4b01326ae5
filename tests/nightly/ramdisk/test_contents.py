"""What the operator adds to a ramdisk is in it; and a ramdisk of another architecture is one."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ferroscope.contrib.ramdisk import manifest
from tests.support import ramdisk
from tests.support.certificates import Authority

pytestmark = pytest.mark.timeout(3600)
# Where an ELF file, a PE file and an arm64 kernel say for which processor they are.
_ELF_MACHINE, _AARCH64 = slice(18, 20), (183).to_bytes(2, "little")
_PE_MACHINE = (0xAA64).to_bytes(2, "little")


def _squashfs(initramfs: Path, target: Path) -> Path:
    command = ["cpio", "--quiet", "-id", "--no-absolute-filenames", "-F", str(initramfs)]
    subprocess.run(command, cwd=target, check=True)
    return target / "root.squashfs"


def _content(squashfs: Path, path: str) -> str:
    return subprocess.run(
        ["unsquashfs", "-cat", str(squashfs), path], capture_output=True, text=True, check=True
    ).stdout


def test_keys_certificates_packages_and_scripts_of_the_operator(tmp_path: Path) -> None:
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    authority = Authority(tmp_path)
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    (hooks / "10-first").write_text("#!/bin/sh\necho first >/etc/made-by-hook\n")
    (hooks / "20-second").write_text("#!/bin/sh\ncat /etc/debian_version >>/etc/made-by-hook\n")
    out = tmp_path / "out"
    done = ramdisk.build(
        out, "--kernel", "cloud", "--ssh-key", f"{key}.pub", "--ca", str(authority.ca), "--hook", str(hooks),
        "--extra-package", "tcpdump", "--sign-key", str(key),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    made = manifest.read(out / "ipa.manifest.json")
    assert "tcpdump" in made.packages
    assert list(made.options.hooks) == ["10-first", "20-second"]
    assert (out / "ipa.manifest.json.sig").exists()
    squashfs = _squashfs(out / "ipa.initramfs", tmp_path)
    assert _content(squashfs, "root/.ssh/authorized_keys") == Path(f"{key}.pub").read_text()
    assert _content(squashfs, "etc/made-by-hook").splitlines()[0] == "first"
    assert authority.ca.read_text().strip() in _content(squashfs, "etc/ssl/certs/ca-certificates.crt")


@pytest.fixture(scope="module")
def arm64() -> Path:
    return ramdisk.cached("--kernel", "cloud", "--arch", "arm64")


def test_everything_of_arm64_is_for_its_processors(arm64: Path, tmp_path: Path) -> None:
    made = manifest.read(arm64 / "ipa-arm64.manifest.json")
    assert made.options.arch == "arm64"
    assert made.kernel.endswith("arm64")
    for name in ("shimaa64.efi", "grubaa64.efi", "ipa-arm64.kernel"):
        content = (arm64 / name).read_bytes()
        header = int.from_bytes(content[0x3C:0x40], "little")
        assert content[header + 4 : header + 6] == _PE_MACHINE
    squashfs = _squashfs(arm64 / "ipa-arm64.initramfs", tmp_path)
    assert (tmp_path / "bin/busybox").read_bytes()[_ELF_MACHINE] == _AARCH64
    subprocess.run(["unsquashfs", "-q", "-d", str(tmp_path / "root"), str(squashfs), "usr/bin/python3.11"], check=True)
    assert (tmp_path / "root/usr/bin/python3.11").read_bytes()[_ELF_MACHINE] == _AARCH64
