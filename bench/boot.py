"""``boot``: what our ramdisk takes from the kernel's start to the callback, part by part, on an emulated machine.

QEMU counts instructions (``-icount``), so the machine's clock is that of a processor with 1,000 million of them a
second, which is less than a core of any server executes, whatever else this host does. All waits are as long as on
hardware, but answers of QEMU's disk and network come when this host has them. A second NIC has no cable, and no switch
sends LLDP. The parts are read off the serial console, on which the kernel stamps every line with that clock.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import click
import msgspec

from bench.report import Report
from ferroscope.boot_config.ramdisk import manifest
from tests.support.processes import spawn
from tests.support.real_service import Api, service

_MAC: Final = "52:54:00:be:00:01"
_SHIFT: Final = 0  # an instruction takes 2 ** 0 nanoseconds
_LOOK: Final = 0.1
_GIVE_UP: Final = 3600.0
_OPTIONS: Final = """
[inspector]
timeout = 7200
callback_secret = off
"""
# The kernel's log has everything, with times, and nothing is held back.
_LOGGED: Final = "console=ttyS0 printk.devkmsg=on systemd.log_target=kmsg systemd.show_status=false"
_STAMP: Final = r"^\[ *([0-9.]+)\] [^\n]*?(?:{})"
# Each part, with what is on the console at its end.
PARTS: Final = (
    ("kernel: start, unpack the initramfs", r"Run /init as init"),
    ("find the system in it, start systemd", r"systemd\[1\]: systemd \d"),
    ("systemd: devices, file systems", r"systemd\[1\]: Starting systemd-networkd\.service"),
    ("address of a NIC", r"systemd\[1\]: Reached target network-online"),
    ("start the agent (Python)", r"agent\[\d+\]: .*INFO ironic_python_agent"),
    ("agent: find devices", r"inspection is enabled"),
    ("wait for the address of the boot NIC", r"Collecting full inventory"),
    ("collector default: lshw, disks, BMC", r"Inventory collected in"),
    ("collectors extra-hardware, PCI, USB, DMI; the rest of listening to the switch", r"Collecting system logs"),
    ("collector logs", r"Posting collected data"),
    ("callback", r"inspection finished successfully"),
)


class Part(msgspec.Struct, frozen=True):
    """``ends``: seconds on the machine's clock; ``computed``: processor seconds that QEMU had used until then."""

    name: str
    ends: float
    computed: float


class Built(msgspec.Struct, frozen=True):
    """``seconds`` and ``computed``: of the build, wall clock and processors."""

    seconds: float
    computed: float
    megabytes: dict[str, float]


class Boot(msgspec.Struct, frozen=True):
    """A boot; ``console``: bytes on the serial line."""

    built: Built | None
    parts: list[Part]
    console: int
    problems: list[str]


def measure(directory: Path, ramdisk: Path | None, kernel: str) -> Boot:
    """Build a ramdisk in ``directory`` unless there is one, let a machine boot it, and wait for its callback."""
    built = None
    if ramdisk is None:
        ramdisk = directory / "ramdisk"
        built = build(ramdisk, kernel)
    with service(directory, _OPTIONS) as api:
        _begin(api)
        parts, console = _boot(directory, ramdisk, api)
        state = _state(api)
    problems = [] if state == "manageable" else [f"the node is in the state {state}"]
    return Boot(built, parts, console, problems)


def build(target: Path, kernel: str) -> Built:
    """Build it as an operator does, and say what that took."""
    before, began = os.times(), time.perf_counter()
    command = [sys.executable, "-m", "ferroscope", "ramdisk", "build", "--directory", str(target), "--kernel", kernel]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after, seconds = os.times(), time.perf_counter() - began
    computed = after.children_user + after.children_system - before.children_user - before.children_system
    files = manifest.read(target / "ipa.manifest.json").files
    megabytes = {name: one.size / 1e6 for name, one in files.items() if one.size > 1e6}
    return Built(seconds, computed, megabytes)


def _begin(api: Api) -> None:
    api.call("POST", "/v1/nodes", {"name": "vm", "driver": "fake-hardware"})
    api.call("POST", "/v1/ports", {"node_uuid": api.node("vm")["uuid"], "address": _MAC})
    for target, wanted in (("manage", "manageable"), ("inspect", "inspect wait")):
        api.call("PUT", "/v1/nodes/vm/states/provision", {"target": target})
        while _state(api) != wanted:
            time.sleep(_LOOK)


def _state(api: Api) -> str:
    return str(api.node("vm")["provision_state"])


def _boot(directory: Path, ramdisk: Path, api: Api) -> tuple[list[Part], int]:
    console = directory / "console"
    callback = f"{api.url.replace('127.0.0.1', '10.0.2.2')}/v1/continue_inspection"
    mac = _MAC.replace(":", "-")
    words = f"{_LOGGED} ipa-inspection-callback-url={callback} ipa-collect-lldp=1 BOOTIF=01-{mac}"
    with (directory / "disk").open("wb") as disk:
        disk.truncate(8 << 30)  # the agent waits for a disk on which a system would fit
    command = [
        "qemu-system-x86_64", "-machine", "q35", "-cpu", "max", "-m", "1024", "-display", "none", "-no-reboot",
        "-icount", f"shift={_SHIFT}", "-serial", f"file:{console}",
        "-drive", f"file={directory / 'disk'},format=raw,if=virtio",
        "-nic", f"user,model=virtio-net-pci,mac={_MAC}",
        "-netdev", "hubport,id=dead,hubid=1", "-device", "virtio-net-pci,netdev=dead",
        "-monitor", f"unix:{directory / 'monitor'},server,nowait",
        "-kernel", str(ramdisk / "ipa.kernel"), "-initrd", str(ramdisk / "ipa.initramfs"), "-append", words,
    ]  # fmt: skip
    machine = spawn(command, user=None, directory=directory, log=directory / "qemu.log")
    try:
        _pull_cable(directory / "monitor")
        parts = _watch(machine, console)
        while _state(api) == "inspect wait" and machine.poll() is None:
            time.sleep(_LOOK)
        return parts, console.stat().st_size
    finally:
        machine.kill()
        machine.wait()


def _pull_cable(monitor: Path) -> None:
    while not monitor.exists():
        time.sleep(_LOOK)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(monitor))
        _await_prompt(connection)
        connection.sendall(b"set_link dead off\n")
        _await_prompt(connection)  # what it has not read is lost with the connection


def _await_prompt(connection: socket.socket) -> None:
    text = b""
    while not text.endswith(b"(qemu) "):
        text += connection.recv(1024)


def _watch(machine: subprocess.Popen[bytes], console: Path) -> list[Part]:
    """Note each part when its end has appeared."""
    found: dict[str, float] = {}
    began = time.monotonic()
    while True:
        text = console.read_text(errors="replace") if console.exists() else ""
        computed = _computed(machine.pid)
        ends = ended(text)
        for name in ends:
            found.setdefault(name, computed)
        if PARTS[-1][0] in ends:
            return [Part(name, seconds, found[name]) for name, seconds in ends.items()]
        if machine.poll() is not None or time.monotonic() - began > _GIVE_UP:
            raise RuntimeError(f"the machine did not call back:\n{text[-3000:]}")
        time.sleep(_LOOK)


def ended(text: str) -> dict[str, float]:
    """Return when each part has ended that has: seconds on the machine's clock."""
    found = {}
    for name, pattern in PARTS:
        if (mark := re.search(_STAMP.format(pattern), text, re.MULTILINE)) is not None:
            found[name] = float(mark[1])
    return found


def _computed(pid: int) -> float:
    """Return the processor seconds of a process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@click.command("boot")
@click.option(
    "--ramdisk",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A directory with one; without it, one is built.",
)
@click.option("--kernel", type=click.Choice(["cloud", "generic"]), default="cloud", show_default=True)
@click.pass_obj
def command(found: tuple[Report, Path], ramdisk: Path | None, kernel: str) -> None:
    """What an emulated machine takes from the kernel's start to the callback, part by part."""
    from bench.cycle import scratch

    report, directory = found
    report.section("boot: an emulated machine, 1,000 million instructions a second")
    with scratch(directory) as place:
        boot = measure(place, ramdisk, kernel)
    report.keep("boot", boot)
    show(report, boot)
    report.wrong(boot.problems)


def show(report: Report, boot: Boot) -> None:
    """Show the parts, and what the build took."""
    rows: list[tuple[object, ...]] = []
    ends = computed = 0.0
    for part in boot.parts:
        rows.append((part.name, part.ends, part.ends - ends, part.computed - computed))
        ends, computed = part.ends, part.computed
    rows.append(("all", ends, ends, computed))
    report.table(("until the end of", "machine's clock", "seconds", "QEMU's processor seconds"), rows)
    report.table(("", ""), [("kilobytes on the serial console", boot.console / 1e3)])
    if boot.built is not None:
        sizes = [(f"{name}, MB", size) for name, size in boot.built.megabytes.items()]
        report.table(
            ("ramdisk", ""),
            [("build, seconds", boot.built.seconds), ("build, processor seconds", boot.built.computed), *sizes],
        )
