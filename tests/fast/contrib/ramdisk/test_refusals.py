"""What a build needs of the host, the mirror and the operator's files is refused before it begins, with what to do."""

from __future__ import annotations

import datetime
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path

import pytest

from ferroscope.contrib.ramdisk import host, inputs, sources, workspace
from ferroscope.contrib.ramdisk.manifest import RamdiskError
from ferroscope.contrib.ramdisk.mirrors import Mirrors
from tests.fast.cli.running import run
from tests.support.certificates import Authority

_RELEASE = """Origin: Debian
Date: Sat, 10 Jan 2026 09:31:54 UTC
Architectures: all amd64 arm64
Components: main updates/contrib non-free-firmware
"""
_KEY = b"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHm admin@example.org\n"


def _refused(call: Callable[[], object]) -> RamdiskError:
    with pytest.raises(RamdiskError) as caught:
        call()
    assert caught.value.advice
    assert "\n" not in caught.value.summary
    return caught.value


def test_a_missing_program_is_named_with_its_package() -> None:
    error = _refused(
        lambda: host.missing({"sh": "dash", "no-such-program": "its-package", "no-such-two": "its-package"})
    )
    assert error.advice.endswith("apt-get install its-package")


def test_pip_is_named_together_with_the_other_missing_programs() -> None:
    error = _refused(lambda: host.missing({"no-such-program": "its-package"}, others=host.PIP))
    assert error.advice.endswith("apt-get install its-package python3-pip-whl")


def test_another_architecture_needs_an_emulator(tmp_path: Path) -> None:
    registered, disabled = tmp_path / "qemu-aarch64", tmp_path / "other"
    registered.write_text("enabled\ninterpreter /usr/bin/qemu-aarch64-static\n")
    disabled.write_text("disabled\n")
    host.check_architecture("amd64", "amd64", [])
    host.check_architecture("arm64", "amd64", [registered])
    for emulators in ([], [disabled], [tmp_path / "missing"]):
        error = _refused(lambda found=emulators: host.check_architecture("arm64", "amd64", found))  # type: ignore[misc]
        assert "qemu-user-static" in error.advice


def test_a_full_disk_is_found_before_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    host.check_space(tmp_path / "not" / "yet", "cloud")
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage(10, 9, 1 << 30))
    _refused(lambda: host.check_space(tmp_path / "not" / "yet", "cloud"))


def test_what_cannot_be_deleted_of_a_killed_build_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = tmp_path / ".ramdisk-build-x" / "mmdebstrap.y"

    def begin() -> None:
        left.mkdir(parents=True, exist_ok=True)
        with workspace.work_directory(tmp_path):
            assert not left.exists()

    begin()
    monkeypatch.setattr("shutil.rmtree", _denied)  # files of a namespace's users
    assert "unshare" in _refused(begin).advice


def _denied(path: Path) -> None:
    raise PermissionError(13, "Permission denied", str(path))


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    _refused(lambda: host.check_space(tmp_path / "file" / "below", "cloud"))


def test_who_is_not_root_needs_subordinate_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getuid", lambda: 4_000_000_000)
    monkeypatch.setenv("LOGNAME", "root")  # of who has become this user
    error = _refused(lambda: host.check_rights(euid=1000))
    assert "sudo" in error.advice
    assert error.summary.startswith("4000000000 is not root")
    host.check_rights(euid=0)


def test_a_release_file_says_when_it_was_published() -> None:
    assert sources.publication_time(_RELEASE).isoformat() == "2026-01-10T09:31:54+00:00"
    with pytest.raises(ValueError, match="date"):
        sources.publication_time("<html>404</html>")


def test_what_a_mirror_does_not_have_is_found() -> None:
    assert sources.lacks(_RELEASE, "amd64", "non-free-firmware") == ""
    assert sources.lacks(_RELEASE, "riscv64", "main") == "riscv64"
    assert sources.lacks(_RELEASE, "arm64", "non-free") == "non-free"


def test_all_sources_are_asked() -> None:
    urls = sources.release_files(Mirrors("http://m/debian", "http://s/debian"))
    assert urls[0] == "http://m/debian/dists/bookworm/InRelease"
    assert urls[2] == "http://s/debian/dists/bookworm-security/InRelease"
    assert len(urls) == 3


def test_only_public_keys_are_taken(tmp_path: Path) -> None:
    public, private, text = (tmp_path / name for name in ("id.pub", "id", "text"))
    public.write_bytes(_KEY)
    private.write_bytes(b"-----BEGIN OPENSSH PRIVATE KEY-----\n")
    assert inputs.ssh_key(public).content == _KEY
    assert str(public) in _refused(lambda: inputs.ssh_key(private)).advice
    for content in (b"hello\n", b"", b"\n# none\n"):
        text.write_bytes(content)
        _refused(lambda: inputs.ssh_key(text))
    _refused(lambda: inputs.ssh_key(tmp_path / "missing"))


def test_each_certificate_of_a_bundle_is_added_by_itself(tmp_path: Path) -> None:
    bundle = tmp_path / "our CAs.pem"
    bundle.write_bytes(b"".join(Authority(tmp_path, name).ca.read_bytes() for name in ("a", "b")))
    assert [one.name for one in inputs.certificates(bundle)] == ["our-CAs-1.crt", "our-CAs-2.crt"]
    later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1000)
    assert "expired" in _refused(lambda: inputs.certificates(bundle, later)).summary
    bundle.write_bytes(b"no certificate")
    _refused(lambda: inputs.certificates(bundle))


def test_hooks_are_scripts_in_the_order_of_their_names(tmp_path: Path) -> None:
    for name in ("20-b", "10-a", ".hidden", "30-c~"):
        (tmp_path / name).write_bytes(b"#!/bin/sh\n")
    assert [one.name for one in inputs.hooks(tmp_path)] == ["10-a", "20-b"]
    (tmp_path / "40-d").write_bytes(b"echo hello\n")
    _refused(lambda: inputs.hooks(tmp_path))
    _refused(lambda: inputs.hooks(tmp_path / "missing"))


@pytest.mark.parametrize(
    "arguments",
    [
        ("--agent", "1.2.3"),
        ("--mirror", "nonsense"),
        ("--extra-package", "A B"),
        ("--ssh-key", "/nonexistent/key.pub"),
        ("--ca", "/nonexistent/ca.pem"),
        ("--hook", "/nonexistent"),
    ],
)
def test_a_bad_option_ends_the_command_before_anything_is_written(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    result = run("ramdisk", "build", "--directory", str(tmp_path / "out"), *arguments)
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 2
    assert not (tmp_path / "out").exists()


def test_a_directory_without_a_ramdisk_is_not_found(tmp_path: Path) -> None:
    for command in ("list", "check"):
        assert run("ramdisk", command, str(tmp_path)).exit_code == 3
