"""What is unknown is refused, with its line and what was probably meant; so is a '$' that refers to no option."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ferroscope.config.load import ConfigurationError, load, unknown_options
from ferroscope.config.sections import options as declared_options

REFERENCE = "see: ferroscope docs configuration"


def written(place: Path, text: str) -> list[str]:
    path = place / "ferroscope.conf"
    path.write_text(text)
    return [str(path)]


def test_known_options_are_not_reported(tmp_path: Path) -> None:
    assert unknown_options(written(tmp_path, "[worker]\nthreads = 2\n[inspector]\nhooks = memory\n")) == []


@pytest.mark.parametrize(
    ("text", "line", "advice"),
    [
        ("[worker]\nreboot_throtle = 2\n", 2, "did you mean reboot_throttle?"),
        ("# [nothing]\n\n[workers]\nthreads = 2\n", 3, "did you mean [worker]?"),
        ("[databse]\n", 1, "did you mean [database]?"),
        ("[DATABASE]\nconnection = x\n", 1, "did you mean [database]?"),
        (
            "[api]\nhost =\n  127.0.0.1,\n  ::1\n; threads\nbare-metal-port : 80\n",
            6,
            "did you mean bare_metal_port?",
        ),
        ("[worker]\nmemberttl = 2\n", 2, "did you mean member_ttl?"),
        ("[worker]\nbare_metal_port = 80\n", 2, "[api] has an option of this name"),
        ("[api]\nport = 80\n", 2, "did you mean bare_metal_port or introspection_port?"),
        ("[DEFAULT]\ndebug = true\n", 1, REFERENCE),
        ("[worker]\nxyzzy = 2\n", 2, REFERENCE),
    ],
)
def test_what_is_unknown_is_refused_with_its_line_and_what_was_probably_meant(
    tmp_path: Path, text: str, line: int, advice: str
) -> None:
    files = written(tmp_path, text)
    (found,) = unknown_options(files)
    assert found.summary.startswith(f"{files[0]}:{line}: ")
    assert found.advice == advice
    with pytest.raises(ConfigurationError) as caught:
        load(files)
    assert caught.value.problems == (str(found),)
    assert caught.value.unknown


@pytest.mark.parametrize(
    ("section", "option"),
    [
        ("api", "request_burst"),  # beside request_rate
        ("drivers", "command_tries"),  # beside command_timeout
        ("inspector", "reinspect_period"),  # beside reinspect_nodes
        ("ironic", "outage_interval"),  # beside retry_interval
        ("pxe_filter", "reconcile_period"),  # beside sync_period
    ],
)
def test_a_name_with_another_word_is_not_taken_for_a_misspelling(tmp_path: Path, section: str, option: str) -> None:
    (found,) = unknown_options(written(tmp_path, f"[{section}]\n{option} = 2\n"))
    assert found.advice == REFERENCE


def test_a_line_that_may_be_a_piece_of_a_password_is_not_quoted(tmp_path: Path) -> None:
    (found,) = unknown_options(written(tmp_path, "[database]\nS3cret//me@host/=name\n"))
    assert "S3cret" not in found.summary


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("OS_WORKER__THREDS", "did you mean OS_WORKER__THREADS?"),
        ("OS_DATABSE__CONNECTION", "did you mean OS_DATABASE__CONNECTION?"),
        ("OS_S3__ENDPONT", "did you mean OS_S3__ENDPOINT?"),
        ("OS_Database__Connection", "did you mean OS_DATABASE__CONNECTION?"),
        ("OS_XYZZY__X", REFERENCE),
    ],
)
def test_an_unknown_variable_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, advice: str
) -> None:
    monkeypatch.setenv("OS_AUTH_URL", "http://elsewhere")  # of an OpenStack client
    monkeypatch.setenv(name, "2")
    (found,) = unknown_options(written(tmp_path, ""))
    assert name in found.summary
    assert found.advice == advice
    with pytest.raises(ConfigurationError):
        load([])


def test_every_variable_of_an_option_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    for section, options in declared_options().items():
        for option in options:
            monkeypatch.setenv(f"OS_{section}__{option.dest}".upper(), "")
    assert unknown_options([]) == []


def test_only_what_is_unknown_is_ignored_if_it_may_be(tmp_path: Path) -> None:
    files = written(tmp_path, "[databse]\nx = 1\n[worker]\nthreds = 2\nthreads = 3\n")
    assert load(files, lenient=True).worker.threads == 3
    with pytest.raises(ConfigurationError, match="threads"):
        load(written(tmp_path, "[worker]\nthreds = 2\nthreads = many\n"), lenient=True)


_REPOSITORY = Path(__file__).parents[3]
_SHIPPED = sorted(
    path.relative_to(_REPOSITORY)
    for place in ("deploy", "examples", "docs")
    for path in (_REPOSITORY / place).rglob("*.conf")
    if any(f"[{section}]" in path.read_text().splitlines() for section in declared_options())
)


@pytest.mark.parametrize("path", _SHIPPED, ids=str)
def test_each_configuration_that_is_shipped_is_known(tmp_path: Path, path: Path) -> None:
    file = tmp_path / path.name
    shutil.copy(_REPOSITORY / path, file)
    assert unknown_options([str(file)]) == []


def test_there_are_shipped_configurations() -> None:
    assert len(_SHIPPED) > 3


def test_a_dollar_sign_in_a_password_is_written_twice(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"'\$\$'"):
        load(written(tmp_path, "[database]\nconnection = postgresql://me:pa$word@host/name\n"))
    settings = load(written(tmp_path, "[database]\nconnection = postgresql://me:pa$$word@host/name\n"))
    assert settings.database.connection == "postgresql://me:pa$word@host/name"
