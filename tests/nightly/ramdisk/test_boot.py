"""A virtual machine boots what was built, and its inspection by the real service finishes: also with Secure Boot."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support import ramdisk
from tests.support.boot.checks import FANS, check_collectors
from tests.support.processes import spawn, until
from tests.support.real_service import Api, service

# An emulated machine, and a build before it: both take minutes, and much longer beside other work.
pytestmark = pytest.mark.timeout(5400)
_MAC = "52:54:00:fe:00:31"
_OPTIONS = """
[inspector]
timeout = 7200
callback_secret = off
hooks = $default_hooks,memory
"""
# Emulated, on a busy machine.
_SECONDS = 1800.0
_FIRMWARE = Path("/usr/share/OVMF")


def _inspected(directory: Path, options: Sequence[str], api: Api, *, memory: int) -> tuple[dict[str, Any], str]:
    """Boot a machine until its inspection has ended; return the node and what the console said."""
    console = directory / "console"
    command = [
        "qemu-system-x86_64", "-machine", "q35,smm=on", "-cpu", "max", "-m", str(memory), "-display", "none",
        "-serial", f"file:{console}", "-no-reboot", "-drive", f"file={directory / 'disk'},format=raw,if=virtio",
        "-nic", f"user,model=virtio-net-pci,mac={_MAC}", *options,
    ]  # fmt: skip
    (directory / "disk").write_bytes(bytes(1 << 20))
    machine = spawn(command, user=None, directory=directory, log=directory / "qemu.log")
    try:
        ended = until(
            lambda: machine.poll() is not None or api.node("vm")["provision_state"] != "inspect wait", seconds=_SECONDS
        )
        said = console.read_text(errors="replace") if console.exists() else ""
        assert ended, said[-3000:]
        until(lambda: api.node("vm")["provision_state"] in ("manageable", "inspect failed"))
        return api.node("vm"), said
    finally:
        machine.kill()
        machine.wait()


def _begin(api: Api) -> None:
    api.call("POST", "/v1/nodes", {"name": "vm", "driver": "fake-hardware"})
    api.call("POST", "/v1/ports", {"node_uuid": api.node("vm")["uuid"], "address": _MAC})
    api.call("PUT", "/v1/nodes/vm/states/provision", {"target": "manage"})
    assert until(lambda: api.node("vm")["provision_state"] == "manageable")
    api.call("PUT", "/v1/nodes/vm/states/provision", {"target": "inspect"})
    assert until(lambda: api.node("vm")["provision_state"] == "inspect wait")


def _callback(api: Api) -> str:
    """The service's URL as a machine with QEMU's network of a user reaches it."""
    return f"{api.url.replace('127.0.0.1', '10.0.2.2')}/v1/continue_inspection"


@pytest.mark.parametrize("memory", [512, 1024])
def test_a_machine_with_little_memory_boots_from_the_network_files_and_calls_back(tmp_path: Path, memory: int) -> None:
    built = ramdisk.cached()
    with service(tmp_path, _OPTIONS) as api:
        _begin(api)
        url = f"{_callback(api)}?secret=not-on-consoles"
        words = f"console=ttyS0 loglevel=4 ipa-inspection-callback-url={url} ipa-collect-lldp=1 ferroscope.vlan=100"
        # Another NIC with a default route to nowhere, https://github.com/coreos/bugs/issues/212, and a lost clock.
        others = ["-nic", "user,model=virtio-net-pci,net=10.9.0.0/24,restrict=on", "-rtc", "base=2005-01-01"]
        boots = f"{words} BOOTIF=01-{_MAC.replace(':', '-')}"
        files = ["-kernel", str(built / "ipa.kernel"), "-initrd", str(built / "ipa.initramfs"), "-append", boots]
        files += others
        node, said = _inspected(tmp_path, files, api, memory=memory)
    assert node["provision_state"] == "manageable", (node["last_error"], said[-3000:])
    assert node["properties"]["cpu_arch"] == "x86_64"
    assert "Posting collected data" in said
    assert "not-on-consoles" not in said


def test_the_iso_boots_with_secure_boot_and_runs_collectors(tmp_path: Path) -> None:
    key, served, disk = tmp_path / "key", tmp_path / "served", tmp_path / "nvme"
    ramdisk.make_key(key)
    served.mkdir()
    ramdisk.publish(served, key, **FANS)
    disk.write_bytes(bytes(1 << 20))
    with service(tmp_path, _OPTIONS) as api, ramdisk.serving(served) as port:
        collectors = f"ferroscope.collectors=smart,http://10.0.2.2:{port}/list"
        done = ramdisk.build(
            tmp_path / "out", "--kernel", "cloud", "--callback-url", _callback(api), "--ssh-key", f"{key}.pub",
            "--kernel-params", f"console=tty0 console=ttyS0,115200n8 {collectors}",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        _begin(api)
        variables = Path(shutil.copy(_FIRMWARE / "OVMF_VARS_4M.ms.fd", tmp_path))
        firmware = [
            "-global", "driver=cfi.pflash01,property=secure,value=on",
            "-drive", f"if=pflash,unit=0,format=raw,readonly=on,file={_FIRMWARE / 'OVMF_CODE_4M.secboot.fd'}",
            "-drive", f"if=pflash,unit=1,format=raw,file={variables}",
            "-cdrom", str(tmp_path / "out" / "ipa.iso"), "-boot", "d",
            "-drive", f"if=none,id=nvme,format=raw,file={disk}", "-device", "nvme,serial=1,drive=nvme",
        ]  # fmt: skip
        node, said = _inspected(tmp_path, firmware, api, memory=1024)
        assert "Secure boot enabled" in said
        assert node["provision_state"] == "manageable", (node["last_error"], said[-3000:])
        api.version = "1.81"  # the first with inventories
        results = api.call("GET", "/v1/nodes/vm/inventory")["plugin_data"]["collectors"]
        check_collectors(results, f"{api.url}/ui/machines/{node['uuid']}")


def test_all_that_firmware_loads_is_signed_by_debian_or_microsoft() -> None:
    built = ramdisk.cached()
    for name, signer in (("shimx64.efi", "Microsoft"), ("grubx64.efi", "Debian"), ("ipa.kernel", "Debian")):
        done = subprocess.run(["sbverify", "--list", str(built / name)], capture_output=True, text=True, check=True)
        assert signer in done.stdout
