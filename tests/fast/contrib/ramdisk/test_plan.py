"""What a ramdisk is to contain, and what its files are called."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ferroscope.config.options import BootSettings
from ferroscope.contrib.ramdisk import packages
from ferroscope.contrib.ramdisk.installed import OLDEST_AGENT
from ferroscope.contrib.ramdisk.manifest import RamdiskError
from ferroscope.contrib.ramdisk.mirrors import Mirrors
from ferroscope.contrib.ramdisk.plan import BuildPlan, Extra, check, names
from tests.support.rows import each

_MIRRORS = Mirrors("http://mirror.example.org/debian", "http://mirror.example.org/security")


def test_the_files_are_those_that_boot_hosts_serve() -> None:
    settings = BootSettings()
    named = names(settings.kernel, settings.ramdisk, "amd64")
    assert (named.kernel, named.initramfs) == (settings.kernel, settings.ramdisk)
    assert named.iso == "ipa.iso"


def test_files_of_two_architectures_fit_in_one_directory() -> None:
    one, other = names("ipa.kernel", "ipa.initramfs", "amd64"), names("ipa.kernel", "ipa.initramfs", "arm64")
    shared = {*one.files, one.manifest, one.signature} & {*other.files, other.manifest, other.signature}
    assert shared == set()


def test_urls_and_directories_of_the_options_are_left_out_of_names() -> None:
    named = names("http://10.0.0.1/x/vmlinuz", "images/ramdisk.img", "amd64")
    assert (named.kernel, named.initramfs, named.manifest) == ("vmlinuz", "ramdisk.img", "ramdisk.manifest.json")


@each(
    "wrong",
    [
        {"agent": "latest"},
        {"agent": ".".join(map(str, (OLDEST_AGENT[0] - 1, 9)))},
        {"extra_packages": ("fio; reboot",)},
        {"extra_packages": ("--purge",)},
        {"mirror": "mirror.example.org"},
        {"security_mirror": "http://mirror.example.org/security main\ndeb http://x/"},
    ],
)
def test_what_cannot_be_built_is_refused_with_what_to_do(wrong: dict[str, Any]) -> None:
    with pytest.raises(RamdiskError) as caught:
        check(msgspec.structs.replace(BuildPlan(), **wrong))
    assert caught.value.advice
    assert "\n" not in caught.value.summary.replace("\\n", "")


@each("option", ["mirror", "security_mirror"])
def test_a_password_in_the_url_of_a_mirror_is_refused_and_not_repeated(option: str) -> None:
    with pytest.raises(RamdiskError) as caught:
        check(msgspec.structs.replace(BuildPlan(), **{option: "https://me:hush@mirror.example.org/debian"}))
    assert "hush" not in caught.value.summary + caught.value.advice
    assert "machine https://mirror.example.org login" in caught.value.advice


@each("url", ["https://me:hush@mirror.example.org/de bian", "me:hush@mirror.example.org"])
def test_nor_is_the_password_of_a_url_that_is_none(url: str) -> None:
    with pytest.raises(RamdiskError) as caught:
        check(msgspec.structs.replace(BuildPlan(), mirror=url))
    assert "hush" not in caught.value.summary + caught.value.advice


def test_firmware_and_ssh_are_there_only_if_they_are_wanted() -> None:
    small = packages.installed_packages(BuildPlan(kernel="cloud", firmware=False))
    large = packages.installed_packages(BuildPlan(ssh_keys=(Extra("key.pub", b""),)))
    assert not any(name.startswith("firmware-") for name in small)
    assert "openssh-server" not in small
    assert "openssh-server" in large
    assert any(name.startswith("firmware-") for name in large)


def test_non_free_sources_are_used_for_firmware_only() -> None:
    assert all("non-free-firmware" in line for line in packages.sources(BuildPlan(), _MIRRORS, "bookworm"))
    assert not any("non-free" in line for line in packages.sources(BuildPlan(firmware=False), _MIRRORS, "bookworm"))


def test_a_directory_is_copied_from_because_it_is_not_in_the_new_root() -> None:
    found = packages.sources(
        BuildPlan(), Mirrors("file:/srv/debian", "https://mirror.example.org/security"), "bookworm"
    )
    assert [line.split()[1] for line in found][::2] == ["copy:/srv/debian", "https://mirror.example.org/security"]
