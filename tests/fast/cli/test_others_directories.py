"""Root does not write where another user decides what a path means: that user would become root."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from ferroscope.config import foreign
from ferroscope.config.load import STATE_DIRECTORY
from ferroscope.config.options import BootSettings
from ferroscope.contrib.boot.setup import apply
from ferroscope.contrib.boot.setup.plan import InstallTarget
from ferroscope.contrib.ramdisk.manifest import RamdiskError
from ferroscope.contrib.ramdisk.workspace import work_directory
from ferroscope_client.cli.main import main
from ferroscope_client.errors import Failure
from tests.fast.cli.running import NO_CREDENTIALS, run


@pytest.fixture
def link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a link to a directory of root's, which is in one that others may change; this process is root's."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    theirs.chmod(0o777)
    (tmp_path / "roots").mkdir()
    (theirs / "link").symlink_to(tmp_path / "roots")
    return theirs / "link"


def _set_up(link: Path) -> None:
    targets = [InstallTarget(link / "boot.ipxe", b"new")]
    with pytest.raises(Failure, match=r"chown root .*theirs"):
        apply.compare(targets, replace=False)
    with pytest.raises(Failure, match=r"chown root .*theirs"):
        apply.write(targets, [apply.FileChange(targets[0].path, apply.FileState.NEW)])


def _build(link: Path) -> None:
    with pytest.raises(RamdiskError, match=r"chown root .*theirs"), work_directory(link):
        pass


def _boot_configuration(link: Path) -> None:
    file = link.parents[1] / "f.conf"
    file.write_text(
        f"[boot]\nhosts = boot1\nranges = 10.0.0.50-10.0.0.99\ncallback_url = http://10.0.0.1/v1/continue_inspection\n"
        f"dnsmasq_config = {link / 'dnsmasq.conf'}\ntftp_root = {link}\n[pxe_filter]\ninterfaces = lo\n"
    )
    done = run("pxe", "config", "--install", "--host", "boot1", "-c", str(file))
    assert f"chown root {link.parent}" in done.stderr
    done = run("pxe", "ruleset", "-o", str(link / "closed.nft"), "-c", str(file))
    assert f"chown root {link.parent}" in done.stderr


def _users(link: Path) -> None:
    words = ["user", "add", "alice", "--role", "admin", "--file", str(link / "users")]
    done = CliRunner().invoke(main, words, input="long enough\n", env=NO_CREDENTIALS)
    assert f"chown root {link.parent}" in done.stderr


def _databases(link: Path) -> None:
    url = f"sqlite:///{link / 'f.db'}"
    assert "runuser -u ferroscope" in run("db", "upgrade", "--database", url).stderr
    source = link.parents[1] / "source.db"
    assert run("db", "upgrade", "--database", f"sqlite:///{source}").exit_code == 0
    assert "runuser -u ferroscope" in run("db", "copy", f"sqlite:///{source}", url).stderr


@pytest.mark.parametrize("writes", [_set_up, _build, _boot_configuration, _users, _databases])
def test_what_root_runs_refuses_to_write_through_a_link_of_another_user(
    writes: Callable[[Path], None], link: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = os.getuid()  # who runs this test plays root
    check = foreign.changeable
    monkeypatch.setattr(foreign, "changeable", lambda directory, _user: check(directory, own))
    writes(link)
    assert list(link.iterdir()) == []
    assert list(link.parent.iterdir()) == [link]


def test_each_part_of_a_path_counts_also_behind_links_and_what_does_not_exist_is_nobodys(tmp_path: Path) -> None:
    me = os.getuid()
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    (theirs / "below").mkdir(parents=True)
    ours.mkdir()
    (ours / "link").symlink_to("../theirs/below")
    (ours / "loop").symlink_to("loop")
    assert foreign.changeable(ours / "link/new/x", me) is None
    assert foreign.changeable(ours, me + 1) == (None if me == 0 else next(iter(_owned(ours, me))))
    theirs.chmod(0o775)
    assert foreign.changeable(ours / "link/new/x", me) == ours / "../theirs"
    theirs.chmod(0o1777)  # such as /tmp: what is ours in it stays ours
    assert foreign.changeable(ours / "link", me) is None
    assert foreign.changeable(theirs, me) is None
    with pytest.raises(OSError, match="symbolic links"):
        foreign.changeable(ours / "loop", me)


def test_who_has_called_sudo_may_have_root_write_in_directories_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    me = os.getuid()
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("SUDO_UID", str(me))
    foreign.refuse(tmp_path)
    assert not foreign.is_others(tmp_path)
    tmp_path.chmod(0o777)
    with pytest.raises(PermissionError, match="chmod go-w"):
        foreign.refuse(tmp_path)


def _owned(path: Path, user: int) -> list[Path]:
    return [one for one in (*reversed(path.parents), path) if one.stat().st_uid == user]


def test_boot_files_are_not_in_the_services_directory() -> None:
    assert not Path(BootSettings().tftp_root).is_relative_to(STATE_DIRECTORY)
