"""What is wrong with a file that a command reads is said without the usage of the command, which is right."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fast.cli.running import run

READERS = (
    ("node", "import"),
    ("expect",),
    ("firmware", "report", "--list"),
    ("bmc", "set-password", "n1", "--from-file"),
    ("inspect", "reapply", "n1", "--data"),
    ("sim", "--inventory"),
)


@pytest.mark.parametrize("command", READERS, ids=" ".join)
def test_a_file_that_does_not_exist_is_named_and_nothing_else(command: tuple[str, ...], tmp_path: Path) -> None:
    missing = tmp_path / "missing.csv"
    result = run(*command, str(missing))
    assert (result.exit_code, result.stdout) == (2, "")
    assert str(missing) in result.stderr
    assert result.stderr.startswith("Error: ")


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (("node", "import", "--format", "csv"), "nmae,driver\na,fake-hardware\n"),
        (("expect",), "x: ["),
        (("expect",), "- {name: 1}"),
        (("firmware", "report", "--list"), "x: ["),
        (("firmware", "report", "--list"), "- {modle: a}"),
    ],
)
def test_what_is_wrong_in_a_file_is_said_at_once(command: tuple[str, ...], text: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text(text)
    result = run(*command, str(file), FERROSCOPE_URL="http://127.0.0.1:1")
    assert result.exit_code == 2
    assert result.stderr.startswith(f"Error: {file} is ")


@pytest.mark.parametrize(
    "command", [("expect",), ("firmware", "report", "--list"), ("node", "import", "--format", "csv")]
)
def test_a_file_that_is_too_large_is_not_read_to_its_end(command: tuple[str, ...], tmp_path: Path) -> None:
    file = tmp_path / "file"
    with file.open("wb") as sparse:
        sparse.truncate(2**30)
    result = run(*command, str(file), FERROSCOPE_URL="http://127.0.0.1:1")
    assert (result.exit_code, "larger than" in result.stderr) == (2, True)
    assert result.stderr.startswith("Error: ")
