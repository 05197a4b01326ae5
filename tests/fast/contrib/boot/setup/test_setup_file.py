"""What ``ferroscope setup`` adds to a configuration that has settings in several files."""

from __future__ import annotations

from pathlib import Path

import pytest

from ferroscope.config.load import load
from ferroscope.contrib.boot.setup.setup_file import Draft, old_text
from ferroscope_client.errors import Exit, Failure


@pytest.fixture
def drop_in(tmp_path: Path) -> Path:
    """Return where setup writes; the directory has a drop-in of the operator, and the file has settings."""
    directory = tmp_path / "ferroscope.conf.d"
    directory.mkdir()
    (tmp_path / "ferroscope.conf").write_text("[boot]\nhosts = boot1\n")
    (directory / "50-own.conf").write_text("[worker]\ngraceful_timeout = 13\n")
    return directory / "10-setup.conf"


def test_only_what_no_file_has_is_added(drop_in: Path) -> None:
    sections = {"boot": {"hosts": "boot1", "addresses": "boot1 192.0.2.1"}, "worker": {"graceful_timeout": "13"}}
    with Draft(drop_in, "", sections, replace=False) as draft:
        draft.install()
    assert drop_in.read_text().splitlines()[1:] == ["", "[boot]", "addresses = boot1 192.0.2.1"]
    settings = load([str(drop_in.parent.with_suffix(""))])
    assert (settings.boot.hosts, settings.worker.graceful_timeout) == (("boot1",), 13)
    assert draft.settings == settings
    old, existing = old_text(drop_in, add=True, replace=False)
    with Draft(drop_in, old, sections, replace=False) as again:
        assert again.text == old
    assert existing == settings


def test_nothing_is_written_if_the_files_have_all_of_it(drop_in: Path) -> None:
    with Draft(drop_in, "", {"boot": {"hosts": "boot1"}}, replace=False) as draft:
        draft.install()
    assert not drop_in.exists()


def test_the_files_that_override_it_count_in_their_order(drop_in: Path) -> None:
    drop_in.write_text("[worker]\ngraceful_timeout = 12\n")
    with Draft(drop_in, drop_in.read_text(), {"boot": {"addresses": "boot1 192.0.2.1"}}, replace=False) as draft:
        assert draft.settings.worker.graceful_timeout == 13


@pytest.mark.parametrize(
    ("section", "option", "file"), [("boot", "hosts", ""), ("worker", "graceful_timeout", "50-own")]
)
def test_another_value_is_a_conflict_that_names_its_file(drop_in: Path, section: str, option: str, file: str) -> None:
    with pytest.raises(Failure) as refusal:
        Draft(drop_in, "", {section: {option: "7"}}, replace=False)
    assert refusal.value.exit_code == Exit.CONFLICT
    assert refusal.value.message.startswith(str(drop_in.with_stem(file) if file else drop_in.parent.with_suffix("")))


def test_replaced_settings_are_kept_where_no_process_reads_them(drop_in: Path) -> None:
    main = drop_in.parent.with_suffix("")
    before = [main.read_text(), drop_in.with_stem("50-own").read_text()]
    with Draft(drop_in, "", {"boot": {"hosts": "boot2"}}, replace=True) as draft:
        draft.install()
    assert load([str(main)]) == draft.settings
    assert draft.settings.boot.hosts == ("boot2",)
    assert [path.read_text() for path in (Path(f"{main}.old"), drop_in.with_name("50-own.conf.old"))] == before
