"""Unknown options are reported with the closest known one; so is a '$' that refers to no option."""

from __future__ import annotations

from pathlib import Path

import pytest

from ferroscope.config.load import ConfigurationError, load, unknown_options


def written(place: Path, text: str) -> list[str]:
    path = place / "ferroscope.conf"
    path.write_text(text)
    return [str(path)]


def test_known_options_are_not_reported(tmp_path: Path) -> None:
    assert unknown_options(written(tmp_path, "[worker]\nthreads = 2\n[inspector]\nhooks = memory\n")) == []


def test_a_misspelt_option_is_named_with_the_closest_one(tmp_path: Path) -> None:
    (found,) = unknown_options(written(tmp_path, "[worker]\nreboot_throtle = 2\n"))
    assert "reboot_throtle in [worker]" in found.summary
    assert found.closest == "reboot_throttle"


def test_a_misspelt_section_is_named_with_the_closest_one(tmp_path: Path) -> None:
    (found,) = unknown_options(written(tmp_path, "[workers]\nthreads = 2\n"))
    assert "[workers]" in found.summary
    assert found.closest == "[worker]"


def test_a_section_that_resembles_none_leads_to_the_reference_and_stops_nothing(tmp_path: Path) -> None:
    files = written(tmp_path, "[machines]\nkubeconfig = /etc/ferroscope/cluster.kubeconfig\n[worker]\nthreads = 2\n")
    (found,) = unknown_options(files)
    assert "unknown section [machines]" in found.summary
    assert (found.closest, "configuration.md" in found.advice) == ("", True)
    assert load(files).worker.threads == 2


def test_a_misspelt_variable_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OS_WORKER__THREDS", "2")
    monkeypatch.setenv("OS_AUTH_URL", "http://elsewhere")
    (found,) = unknown_options(written(tmp_path, ""))
    assert found.summary.startswith("OS_WORKER__THREDS: ")
    assert found.closest == "threads"


def test_a_dollar_sign_in_a_password_is_written_twice(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"'\$\$'"):
        load(written(tmp_path, "[database]\nconnection = postgresql://me:pa$word@host/name\n"))
    settings = load(written(tmp_path, "[database]\nconnection = postgresql://me:pa$$word@host/name\n"))
    assert settings.database.connection == "postgresql://me:pa$word@host/name"
