"""The texts in a ramdisk's log: real archives are read, and those that were made to do harm cost nothing."""

from __future__ import annotations

import gzip
import io
import tarfile
import zlib

from ferroscope.contrib.ui.ramdisk_log import read_log
from tests.support.rows import each


def archive(*files: tuple[str, bytes], mode: str = "w:gz", form: int = tarfile.PAX_FORMAT) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode=mode, format=form) as made:  # type: ignore[call-overload]  # a variable mode
        for name, content in files:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            member.mtime = 1.5  # type: ignore[assignment]  # has a pax header of its own
            made.addfile(member, io.BytesIO(content))
    return stream.getvalue()


@each("mode", ["w:gz", "w:"])
@each("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
def test_the_files_of_an_archive_are_shown(mode: str, form: int) -> None:
    found = read_log(
        archive(("journal", b"one\n" * 300), ("df", "Gr\u00f6\u00dfe".encode()), ("empty", b""), mode=mode, form=form)
    )
    assert [(one["name"], one["text"]) for one in found["texts"]] == [
        ("journal", "one\n" * 300),
        ("df", "Gr\u00f6\u00dfe"),
        ("empty", ""),
    ]
    assert found["problem"] == ""


def test_the_end_of_a_long_text_is_shown() -> None:
    (one,) = read_log(archive(("journal", b"x" * 100_000 + b"the end")))["texts"]
    assert one["text"].endswith("the end")
    assert (len(one["text"]), one["cut"]) == (60_000, True)


def test_what_is_no_archive_is_said_to_be_none() -> None:
    whole = archive(("journal", b"x" * 5000))
    for body in (
        b"",
        b"\x1f\x8b",
        b"\x1f\x8b" + b"x" * 600,
        b"text" * 400,
        b"\0" * 4096,
        gzip.compress(b"\xff" * 9000),
    ):
        assert read_log(body) == {"texts": [], "problem": read_log(b"")["problem"]}
    assert read_log(whole[:-9])["problem"]


def test_an_archive_that_is_small_and_says_it_is_huge_costs_little() -> None:
    bomb = zlib.compressobj(9, zlib.DEFLATED, 31)
    start = archive(("journal", b"begin"), mode="w:")[:1536]
    body = bomb.compress(start + archive(("zeros", b"\0" * 64_000_000), mode="w:")[:-10240]) + bomb.flush()
    assert len(body) < 200_000
    found = read_log(body)
    assert found["texts"][0]["name"] == "journal"
    assert "part" in found["problem"]


@each("size", [b"-0000000001\0", b"\x80" + b"\xff" * 11, b"77777777777\0", b"           \0"])
def test_a_size_that_leads_back_or_nowhere_ends_the_archive(size: bytes) -> None:
    plain = bytearray(archive(("a", b"1"), ("b", b"2"), mode="w:", form=tarfile.USTAR_FORMAT))
    plain[124:136] = size
    assert len(read_log(bytes(plain))["texts"]) <= 1


def test_many_files_are_bounded() -> None:
    found = read_log(archive(*((f"f{number}", b"x") for number in range(60))))
    assert (len(found["texts"]), "part" in found["problem"]) == (40, True)
