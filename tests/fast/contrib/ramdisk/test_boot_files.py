"""What firmware reads of a ramdisk, and the command that installs Debian's packages."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from ferroscope.contrib.ramdisk import agent, boot_files, system
from ferroscope.contrib.ramdisk.mirrors import Mirrors
from ferroscope.contrib.ramdisk.plan import AGENT, BuildPlan, Extra, names
from ferroscope.core.boot import CALLBACK_PARAMETER

_NAMES = names("ipa.kernel", "ipa.initramfs", "amd64")
_MIRRORS = Mirrors("http://mirror.example.org/debian", "http://mirror.example.org/security")
_URL = "http://10.0.0.1:6385/v1/continue_inspection"


def test_an_iso_tells_the_agent_to_read_the_parameter_disk() -> None:
    for text in boot_files.iso_tree("amd64", _URL, "quiet").values():
        if "linux" in text or "APPEND" in text:
            assert "boot_method=vmedia" in text
            assert f"{CALLBACK_PARAMETER}={_URL}" in text
            assert "quiet" in text


def test_what_boots_from_the_network_reads_no_parameter_disk() -> None:
    for text in (
        boot_files.network_grub_menu(_NAMES, _URL, ""),
        boot_files.ipxe_script(_NAMES, _URL, ""),
    ):
        assert "vmedia" not in text
        assert "BOOTIF=01-" in text


def test_without_a_callback_url_none_is_built_in() -> None:
    assert CALLBACK_PARAMETER not in boot_files.network_grub_menu(_NAMES, "", "")
    assert "set callback" not in "".join(
        line for line in boot_files.ipxe_script(_NAMES, "", "").splitlines() if not line.startswith("#")
    )


def test_only_machines_with_a_bios_have_isolinux() -> None:
    assert "isolinux/isolinux.cfg" in boot_files.iso_tree("amd64", "", "")
    assert "isolinux/isolinux.cfg" not in boot_files.iso_tree("arm64", "", "")
    assert "isolinux/isolinux.bin" in boot_files.iso_command("amd64", "tree", "x.iso", [])
    assert "isolinux/isolinux.bin" not in boot_files.iso_command("arm64", "tree", "x.iso", [])


def test_the_contents_of_an_iso_are_in_an_order_of_their_own_and_not_of_inodes() -> None:
    files = ["boot/vmlinuz", "boot/initramfs", "boot/efi.img", "isolinux/isolinux.bin"]
    command = boot_files.iso_command("amd64", "tree", "x.iso", files)
    assert command == boot_files.iso_command("amd64", "tree", "x.iso", files[::-1])
    weights = {command[at + 2]: int(command[at + 1]) for at, word in enumerate(command) if word == "--sort-weight"}
    assert weights.keys() == {f"/{name}" for name in files}
    assert len(set(weights.values())) == len(files)


def test_a_server_that_sends_nothing_is_given_up_by_the_script() -> None:
    fetches = [
        line for line in boot_files.ipxe_script(_NAMES, _URL, "").splitlines() if line.startswith(("kernel", "initrd"))
    ]
    assert len(fetches) == 2
    assert all(line.split()[1:3] == ["--timeout", "60000"] for line in fetches)


def test_passwords_of_mirrors_are_in_no_command() -> None:
    command = system.mmdebstrap(
        BuildPlan(), _MIRRORS, Path("/build"), Path("/apt.conf"), [Path("/etc/apt/auth.conf.d/mirror one.conf")]
    )
    added = [word for word in command if word.startswith("--setup-hook=")]
    assert len(added) == 2
    assert "'/etc/apt/auth.conf.d/mirror one.conf'" in added[1]
    assert not any(
        word.startswith("--setup-hook=")
        for word in system.mmdebstrap(BuildPlan(), _MIRRORS, Path("/w"), Path("/apt.conf"))
    )


def test_only_the_default_agent_is_installed_with_hashes() -> None:
    assert "--require-hashes" in agent.pip_arguments(AGENT, "amd64", Path("t"))
    other = agent.pip_arguments("12.0.0", "arm64", Path("t"))
    assert "--require-hashes" not in other
    assert "ironic-python-agent==12.0.0" in other
    assert any("aarch64" in word for word in other)
    assert not any("x86_64" in word for word in other)


def test_every_package_of_the_agent_is_pinned_with_a_hash() -> None:
    text = agent._PINS.read_text(encoding="utf-8")
    pinned = [line for line in text.splitlines() if "==" in line]
    assert f"ironic-python-agent=={AGENT} \\" in pinned
    assert all(line.endswith(" \\") for line in pinned)  # the hashes follow
    assert "--hash=sha256:" in text


def test_hooks_run_after_our_steps_and_before_the_end() -> None:
    plan = BuildPlan(hooks=(Extra("10-first", b"#!/bin/sh\n"), Extra("20-second", b"#!/bin/sh\n")))
    command = system.mmdebstrap(plan, _MIRRORS, Path("/w o r k"), Path("/apt.conf"))
    hooks = [word for word in command if word.startswith("--customize-hook=")]
    marks = ("overlay.tar", ' fetch "$1"', ' prepare "$1"', "10-first", "20-second", ' finish "$1"', "store.tar")
    order = [next(number for number, hook in enumerate(hooks) if mark in hook) for mark in marks]
    assert order == sorted(order)


def test_paths_with_spaces_stay_one_argument_of_a_hook() -> None:
    command = system.mmdebstrap(BuildPlan(), _MIRRORS, Path("/w o r k"), Path("/apt.conf"))
    added = next(word for word in command if "tar-in" in word).removeprefix("--customize-hook=")
    assert shlex.split(added) == ["tar-in", "/w o r k/overlay.tar", "/"]


def test_the_topmost_directory_belongs_to_root_whoever_builds(monkeypatch: pytest.MonkeyPatch) -> None:
    for user, expected in ((0, "env"), (1000, "unshare")):
        monkeypatch.setattr("os.geteuid", lambda user=user: user)
        assert system.mksquashfs(1_700_000_000, Path("/build/root.squashfs"))[0] == expected
