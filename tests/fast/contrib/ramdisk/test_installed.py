"""What is installed in a directory, and what the checks say about it."""

from __future__ import annotations

import datetime
from pathlib import Path

import msgspec
import pytest

from ferroscope.config.options import ApiSettings, BootSettings, InspectorSettings, Settings
from ferroscope.contrib.ramdisk import checks as doctor
from ferroscope.contrib.ramdisk import installed, manifest
from ferroscope.contrib.ramdisk.installed import OLD_DAYS, Installed
from ferroscope.contrib.ramdisk.manifest import BuildOptions, Manifest, RamdiskError
from ferroscope.contrib.ramdisk.plan import AGENT

_NOW = datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC)
_OPTIONS = BuildOptions(kernel="cloud", arch="amd64", firmware=False, agent=AGENT)


def _install(directory: Path, name: str = "ipa", **changes: object) -> Installed:
    files = {f"{name}.kernel": b"kernel", f"{name}.initramfs": b"initramfs", f"{name}.iso": b"iso"}
    for file, content in files.items():
        (directory / file).write_bytes(content)
    made = Manifest(
        ferroscope="0",
        agent=AGENT,
        kernel="6.1.0-1-cloud-amd64",
        sources_time=_NOW,
        options=_OPTIONS,
        files={file: manifest.digest(directory / file) for file in files},
        packages={"lshw": "1"},
        agent_packages={"ironic-python-agent": AGENT},
    )
    made = msgspec.structs.replace(made, **changes)
    (directory / f"{name}.manifest.json").write_bytes(manifest.write(made))
    (found,) = (one for one in installed.find(directory) if one.name == name)
    return found


def _verdicts(one: Installed, settings: Settings | None = None, *, days: int = 1) -> dict[str, str]:
    now = _NOW + datetime.timedelta(days=days)
    return {found.code: found.verdict for found in doctor.examine(one, settings or Settings(), now=now)}


def test_a_manifest_is_read_as_it_was_written(tmp_path: Path) -> None:
    one = _install(tmp_path)
    assert one.manifest.options == _OPTIONS
    assert manifest.write(one.manifest) == one.path.read_bytes()
    assert one.size == len(b"kernel") + len(b"initramfs")


def test_an_untouched_ramdisk_is_fine(tmp_path: Path) -> None:
    assert _verdicts(_install(tmp_path)) == {"ramdisk": "ok", "ramdisk-files": "ok"}


@pytest.mark.parametrize("content", [b"KERNEL", b"longer than it was", None])
def test_a_file_that_was_changed_or_removed_is_found(tmp_path: Path, content: bytes | None) -> None:
    one = _install(tmp_path)
    (tmp_path / "ipa.kernel").unlink()
    if content is not None:
        (tmp_path / "ipa.kernel").write_bytes(content)
    assert _verdicts(one)["ramdisk-files"] == "wrong"


def test_old_sources_are_noted_because_updates_are_missing(tmp_path: Path) -> None:
    one = _install(tmp_path)
    assert _verdicts(one, days=OLD_DAYS)["ramdisk"] == "ok"
    assert _verdicts(one, days=OLD_DAYS + 1)["ramdisk"] == "note"


def test_an_agent_that_is_no_longer_supported_is_wrong(tmp_path: Path) -> None:
    assert _verdicts(_install(tmp_path, agent="8.9.1"))["ramdisk"] == "wrong"


def test_a_callback_url_that_was_built_in_and_is_another_now_is_noted(tmp_path: Path) -> None:
    one = _install(
        tmp_path, options=msgspec.structs.replace(_OPTIONS, callback_url="http://10.0.0.1/v1/continue_inspection")
    )
    same = Settings(boot=BootSettings(callback_url="http://10.0.0.1/v1/continue_inspection"))
    other = Settings(inspector=InspectorSettings(callback_endpoint_override="http://10.0.0.2"))
    assert _verdicts(one, same)["ramdisk-callback"] == "ok"
    assert {found.verdict for found in doctor.examine(one, other) if found.code == "ramdisk-callback"} == {"note", "ok"}


def test_a_callback_url_that_only_this_host_reaches_is_noted(tmp_path: Path) -> None:
    settings = Settings(inspector=InspectorSettings(callback_endpoint_override="http://localhost:6385"))
    assert _verdicts(_install(tmp_path), settings)["ramdisk-callback"] == "note"


def test_a_kernel_that_x86_machines_cannot_run_is_noted_where_they_boot(tmp_path: Path) -> None:
    _install(tmp_path, options=msgspec.structs.replace(_OPTIONS, arch="arm64"))
    boot = BootSettings(hosts=("boot1",), tftp_root=str(tmp_path))

    def noted(boot: BootSettings = boot) -> bool:
        return "ramdisk-arch" in {one.code for one in doctor.examine_ramdisks(Settings(boot=boot))}

    assert not noted()
    (tmp_path / boot.loader_x64).write_bytes(b"")
    assert noted()
    assert not noted(msgspec.structs.replace(boot, kernel="other.kernel"))


def test_a_signature_that_is_wanted_and_missing_is_wrong(tmp_path: Path) -> None:
    found = doctor.examine(_install(tmp_path), Settings(), tmp_path / "key.pub", now=_NOW)
    assert {one.verdict for one in found if one.code == "ramdisk-signature"} == {"wrong"}


def test_the_callback_url_is_that_of_boot_hosts_or_of_the_api() -> None:
    assert doctor.expected_callback(Settings()) == ""
    assert (
        doctor.expected_callback(Settings(api=ApiSettings(public_url="http://a"))) == "http://a/v1/continue_inspection"
    )
    assert doctor.expected_callback(Settings(boot=BootSettings(callback_url="http://b/x"))) == "http://b/x"


def test_the_doctor_is_silent_about_ramdisks_of_others(tmp_path: Path) -> None:
    settings = Settings(boot=BootSettings(hosts=("boot1",), tftp_root=str(tmp_path)))
    assert list(doctor.examine_ramdisks(settings)) == []
    _install(tmp_path)
    assert {one.code for one in doctor.examine_ramdisks(settings)} >= {"ramdisk", "ramdisk-files"}


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff\xfe", b"[1]"])
def test_a_manifest_that_is_none_is_said_to_be_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "ipa.manifest.json").write_bytes(content)
    with pytest.raises(RamdiskError):
        installed.find(tmp_path)
    settings = Settings(boot=BootSettings(hosts=("boot1",), tftp_root=str(tmp_path)))
    assert [one.verdict for one in doctor.examine_ramdisks(settings)] == ["wrong"]


def test_packages_are_read_from_what_dpkg_prints() -> None:
    assert manifest.packages("lshw\t02.19\tamd64\nbad line\nudev\t252\tamd64\n") == {"lshw": "02.19", "udev": "252"}
