"""An option that does not exist is named, with the one that was meant; a '$' that stands for nothing is explained."""

from __future__ import annotations

from pathlib import Path

import pytest

from ferroscope.config.load import ConfigurationError, load, unknown_options


def written(place: Path, text: str) -> list[str]:
    path = place / "ferroscope.conf"
    path.write_text(text)
    return [str(path)]


def test_nothing_is_said_of_what_exists(tmp_path: Path) -> None:
    assert unknown_options(written(tmp_path, "[worker]\nthreads = 2\n[inspector]\nhooks = memory\n")) == []


def test_a_misspelt_option_is_named_with_the_closest_one(tmp_path: Path) -> None:
    (said,) = unknown_options(written(tmp_path, "[worker]\nreboot_throtle = 2\n"))
    assert str(said).endswith("[worker] has no option reboot_throtle; did you mean reboot_throttle?")


def test_a_misspelt_section_is_named_with_the_closest_one(tmp_path: Path) -> None:
    (said,) = unknown_options(written(tmp_path, "[workers]\nthreads = 2\n"))
    assert str(said).endswith("there is no section [workers]; did you mean [worker]?")


def test_a_misspelt_variable_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OS_WORKER__THREDS", "2")
    monkeypatch.setenv("OS_AUTH_URL", "http://elsewhere")
    assert [str(said) for said in unknown_options(written(tmp_path, ""))] == [
        "OS_WORKER__THREDS: [worker] has no option threds; did you mean threads?"
    ]


def test_a_dollar_sign_in_a_password_is_written_twice(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"write '\$\$'"):
        load(written(tmp_path, "[database]\nconnection = postgresql://me:pa$word@host/name\n"))
    settings = load(written(tmp_path, "[database]\nconnection = postgresql://me:pa$$word@host/name\n"))
    assert settings.database.connection == "postgresql://me:pa$word@host/name"
