"""Builds that something goes wrong in: each ends in two lines, which say why and what to do, and leaves nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ferroscope.contrib.ramdisk import manifest
from tests.support import debian_mirror, ramdisk
from tests.support.bad_server import a_server_that
from tests.support.debian_mirror import Answer, cut_off, missing, page, silent
from tests.support.processes import until

pytestmark = pytest.mark.timeout(3600)
_MIB = 1 << 20
_SMALL = ("--kernel", "cloud")


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where what was loaded from the mirror is kept, for all tests."""
    return tmp_path_factory.mktemp("mirror")


def _mirrors(url: str) -> tuple[str, ...]:
    return ("--mirror", f"{url}/debian", "--security-mirror", f"{url}/debian-security")


def _failed(done: subprocess.CompletedProcess[str], out: Path) -> list[str]:
    """Return the two lines with which a build has failed."""
    *said, summary, advice = done.stderr.splitlines()
    assert done.returncode == 1, done.stderr
    assert all(line.startswith(("asking", "Debian's packages", "[")) for line in said), done.stderr
    assert not list(out.glob("*"))
    return [summary, advice]


@pytest.mark.parametrize(
    ("where", "answer", "words"),
    [
        (r"bookworm/main/binary-amd64/", page, "unexpected size"),
        (r"lshw_.*\.deb$", missing, "404"),
        (r"lshw_.*\.deb$", cut_off, "lshw"),
        (r"lshw_.*\.deb$", silent, "lshw"),
        (r"security.*InRelease", page, "is not a release file of Debian"),
        (r"security.*InRelease", silent, "timed out"),
    ],
    ids=["page", "missing", "cut-off", "silent", "page-first", "silent-first"],
)
def test_a_mirror_that_breaks_in_the_middle(tmp_path: Path, kept: Path, where: str, answer: Answer, words: str) -> None:
    with debian_mirror.serving(kept, where, answer) as url:
        done = ramdisk.build(tmp_path / "out", *_SMALL, *_mirrors(url))
    summary, advice = _failed(done, tmp_path / "out")
    assert words in summary
    assert "mirror" in advice


@pytest.mark.parametrize(
    ("options", "words", "advice"),
    [
        (("--extra-package", "no-such-package"), "no-such-package", "--extra-package"),
        (("--agent", "99.0.0"), "99.0.0", "release"),
    ],
    ids=["package", "agent"],
)
def test_what_does_not_exist(tmp_path: Path, options: tuple[str, ...], words: str, advice: str) -> None:
    said = _failed(ramdisk.build(tmp_path / "out", *_SMALL, *options), tmp_path / "out")
    assert words in said[0]
    assert advice in said[1]


@pytest.mark.parametrize("pause", [0.0, 3600.0], ids=["cut-off", "silent"])
def test_an_index_that_breaks_while_the_agent_is_fetched(tmp_path: Path, pause: float) -> None:
    begun = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 5000\r\n\r\n<html>"
    with a_server_that([begun], pause=pause) as port:
        others = {
            "PIP_INDEX_URL": f"http://127.0.0.1:{port}/simple",
            "PIP_CONFIG_FILE": "/dev/null",
            "PIP_RETRIES": "1",
        }
        done = ramdisk.build(tmp_path / "out", *_SMALL, environment=others | {"PIP_FIND_LINKS": ""})
    summary, advice = _failed(done, tmp_path / "out")
    assert "ironic-python-agent" in summary
    assert "index" in advice


def test_a_script_that_fails_is_named(tmp_path: Path) -> None:
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    (hooks / "10-fails").write_text("#!/bin/sh\necho it is broken >&2\nexit 3\n")
    summary, advice = _failed(ramdisk.build(tmp_path / "out", *_SMALL, "--hook", str(hooks)), tmp_path / "out")
    assert "10-fails" in summary
    assert "--verbose" in advice


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Return a directory on a disk that has just enough room for a build to begin."""
    image, place = tmp_path / "disk.img", tmp_path / "disk"
    place.mkdir()
    with image.open("wb") as file:
        file.truncate(2300 * _MIB)
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, place], check=True)
    yield place / "out"
    subprocess.run(["umount", place], check=True)


# How much is left of the disk: less than the system needs, and less than what is made of it needs beside it.
@pytest.mark.parametrize("left", [200, 500])
def test_a_disk_that_becomes_full(small_disk: Path, left: int) -> None:
    command = [sys.executable, "-m", "ferroscope", "ramdisk", "build", *_SMALL, "--directory", str(small_disk)]
    build = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert until(lambda: small_disk.exists() or build.poll() is not None)
    free = int(subprocess.check_output(["stat", "-f", "-c", "%a", small_disk])) * 4096
    subprocess.run(["fallocate", "-l", str(free - left * _MIB), small_disk.parent / "of-others"], check=True)
    out, err = build.communicate()
    summary, advice = _failed(subprocess.CompletedProcess(command, build.returncode, out, err), small_disk)
    assert "No space left on device" in summary or "enough free space" in summary
    assert "make room" in advice


def test_a_second_build_into_the_same_directory_is_refused_and_the_first_one_ends_well(
    tmp_path: Path, kept: Path
) -> None:
    hooks, out = tmp_path / "hooks", tmp_path / "out"
    hooks.mkdir()
    # Nobody answers it.
    (hooks / "10-asks").write_text("#!/bin/sh\nread -r answer || echo nobody >/etc/answer\n")
    with debian_mirror.serving(kept) as url:
        command = [sys.executable, "-m", "ferroscope", "ramdisk", "build", *_SMALL, "--directory", str(out)]
        with subprocess.Popen([*command, *_mirrors(url), "--hook", str(hooks)], stdin=subprocess.PIPE) as first:
            assert until(lambda: bool(list(out.glob(".ramdisk-build-*"))) or first.poll() is not None)
            second = ramdisk.build(out, *_SMALL)
            assert first.wait() == 0
    assert second.returncode == 1
    assert "another build" in second.stderr
    before = manifest.read(out / "ipa.manifest.json")
    # The same from a mirror on a disk, which is nowhere in the new system.
    done = ramdisk.build(out, *_SMALL, *_mirrors(f"file:{kept}"), "--hook", str(hooks))
    assert done.returncode == 0, done.stderr
    assert manifest.read(out / "ipa.manifest.json").files == before.files
