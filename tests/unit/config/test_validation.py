"""Settings that contradict each other are refused; what is wrong with a value says which, and where it is from."""

from __future__ import annotations

from pathlib import Path

import pytest

from ferroscope.config.load import ConfigurationError, load


def _refusal(tmp_path: Path, text: str) -> str:
    file = tmp_path / "f.conf"
    file.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        load([str(file)])
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "inequality"),
    [
        ("[lease]\nprofile = custom\nttl = 2\nmargin = 3\n", "[lease] ttl must be at least renew + margin + 0.5 s"),
        ("[worker]\nheartbeat_interval = 20\n", "[worker] member_ttl must be at least 2 * heartbeat_interval"),
        ("[log]\nlevels = ferroscope.worker:loud\n", "[log] levels: 'loud' of ferroscope.worker is not a level"),
        ("[api]\nbare_metal_port = 5050\n", "[api] bare_metal_port and introspection_port must differ"),
    ],
)
def test_a_contradiction_is_refused_with_its_inequality(tmp_path: Path, text: str, inequality: str) -> None:
    assert inequality in _refusal(tmp_path, text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[lease]\nprofile = fast\nttl = 1\nmargin = 9\n",  # these numbers are those of the profile custom alone
        "[lease]\nprofile = custom\nttl = 3\nrenew = 1.5\nmargin = 1\n[worker]\nmember_ttl = 3\n",
        "[api]\nbare_metal_port = 0\nintrospection_port = 0\n",
    ],
)
def test_what_fits_together_is_taken(tmp_path: Path, text: str) -> None:
    file = tmp_path / "f.conf"
    file.write_text(text)
    load([str(file)])


def test_a_wrong_value_is_told_with_its_section_and_file(tmp_path: Path) -> None:
    said = _refusal(tmp_path, "[api]\nbare_metal_port = x\n")
    assert said == f"[api] bare_metal_port: 'x' is no number (from {tmp_path}/f.conf)"
    assert "Should be greater than or equal to 1 (from" in _refusal(tmp_path, "[api]\nthreads = 0\n")
    assert "[lease] profile: Valid values are [default, fast, custom]" in _refusal(tmp_path, "[lease]\nprofile = q\n")


def test_a_wrong_variable_is_not_blamed_on_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OS_API__BARE_METAL_PORT", "x")
    said = _refusal(tmp_path, "[api]\nbare_metal_port = 6385\n")
    assert said == "[api] bare_metal_port: 'x' is no number (from OS_API__BARE_METAL_PORT)"


@pytest.mark.parametrize("line", ["S3cret", "  S3cret\n", "=S3cret", "[x]\nconnection = a\nb'S3cret'", "[S3cret"])
def test_a_line_that_cannot_be_read_is_told_by_its_number_alone(tmp_path: Path, line: str) -> None:
    said = _refusal(tmp_path, f"[database]\nconnection =\n\n{line}")
    assert "S3cret" not in said
    assert "f.conf:" in said
