"""QR codes: the same as other programs draw, and codewords that their error correction confirms."""

from __future__ import annotations

import hashlib

import pytest

from ferroscope.core import qr


def digest(rows: qr.Modules) -> str:
    return hashlib.sha256("".join("01"[one] for row in rows for one in row).encode()).hexdigest()[:16]


@pytest.mark.parametrize(
    ("length", "size"), [(1, 21), (14, 21), (15, 25), (106, 41), (107, 45), (122, 45), (180, 53), (181, 57), (213, 57)]
)
def test_the_smallest_version_that_fits_is_drawn(length: int, size: int) -> None:
    assert [len(row) for row in qr.encode("x" * length)] == [size] * size


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(qr.TooLongError, match="213"):
        qr.encode("x" * 214)


# Compared once, module by module, with what segno 1.6.6 draws: texts that fill their version, so that padding is none.
@pytest.mark.parametrize(
    ("text", "known"), [("0123456789abcd", "28a120473654230b"), ("https://f.example/" + "ab" * 44, "30ba11ec32a242cf")]
)
def test_it_is_what_another_program_draws(text: str, known: str) -> None:
    assert digest(qr.encode(text)) == known


@pytest.mark.parametrize("degree", [10, 16, 18, 22, 24, 26])
def test_a_block_with_its_correction_is_divided_by_the_generator(degree: int) -> None:
    data = [(7 * number + 3) % 256 for number in range(30)]
    root = 1
    for _ in range(degree):
        value = 0
        for word in data + qr.correction(data, degree):
            value = qr._times(value, root) ^ word
        assert value == 0
        root = qr._times(root, 2)
