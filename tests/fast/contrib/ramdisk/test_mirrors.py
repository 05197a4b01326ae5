"""From which mirrors a ramdisk is built: those of the options, else those of this host's apt."""

from __future__ import annotations

from pathlib import Path

import pytest

from ferroscope.contrib.ramdisk import mirrors
from ferroscope.contrib.ramdisk.manifest import RamdiskError
from ferroscope.contrib.ramdisk.mirrors import Mirrors, choose
from ferroscope.contrib.ramdisk.plan import BuildPlan
from tests.support.rows import each

_DEBIAN = "http://mirror.example.org/debian/"
_SECURITY = "http://mirror.example.org/debian-security/"


def _listing(*sources: str) -> str:
    return "".join(f"{one}\n" for one in sources)


_USUAL = _listing(
    f"{_DEBIAN} bookworm", f"{_DEBIAN} bookworm", f"{_DEBIAN} bookworm-updates", f"{_SECURITY} bookworm-security"
)


def _refused(listing: str, plan: BuildPlan | None = None, *, is_debian: bool = True) -> RamdiskError:
    with pytest.raises(RamdiskError) as caught:
        choose(plan or BuildPlan(), listing, is_debian=is_debian)
    assert caught.value.advice
    assert "\n" not in caught.value.summary
    return caught.value


def test_the_default_is_what_the_host_uses() -> None:
    found = choose(BuildPlan(), _USUAL, is_debian=True)
    assert found == Mirrors("http://mirror.example.org/debian", "http://mirror.example.org/debian-security")


def test_what_is_said_wins_each_by_itself() -> None:
    said = "https://snapshot.example.org/20260110T000000Z"
    assert choose(BuildPlan(mirror=f"{said}/"), _USUAL, is_debian=True).packages == said
    assert choose(BuildPlan(mirror=said), _USUAL, is_debian=True).security == _SECURITY.rstrip("/")
    assert choose(BuildPlan(security_mirror=said), _USUAL, is_debian=True).security == said
    assert mirrors.of(BuildPlan(mirror=said, security_mirror=f"{said}/security/")).security == f"{said}/security"


@each(
    "others",
    [
        "http://others.example.org/tools/ bookworm",  # a vendor who calls its releases like Debian's
        "http://others.example.org/sql/ bookworm-sql",
        "http://others.example.org/flat/ ./",
        "cdrom://[Debian GNU/Linux 12.0.0 _Bookworm_ - Official amd64 DVD Binary-1]/ bookworm",
    ],
)
def test_other_sources_are_not_taken_for_a_mirror_of_debian(others: str) -> None:
    assert choose(BuildPlan(), _listing(others) + _USUAL, is_debian=True).packages == _DEBIAN.rstrip("/")


def test_the_first_of_several_mirrors_is_taken() -> None:
    second = _USUAL.replace("mirror.", "second.")
    assert choose(BuildPlan(), _USUAL + second, is_debian=True).packages == _DEBIAN.rstrip("/")


def test_a_host_without_updates_has_a_mirror_nevertheless() -> None:
    listing = _listing("file:/srv/debian/ bookworm", f"{_SECURITY} bookworm-security")
    assert choose(BuildPlan(), listing, is_debian=True).packages == "file:/srv/debian"


def test_a_host_with_another_release_of_debian_offers_its_mirror() -> None:
    listing = _USUAL.replace("bookworm", "trixie")
    assert choose(BuildPlan(), listing, is_debian=True) == choose(BuildPlan(), _USUAL, is_debian=True)
    older = _USUAL.replace("mirror.", "oldstable.")
    assert "oldstable" in choose(BuildPlan(), listing + older, is_debian=True).packages


@each(
    "listing",
    [
        "",
        "cdrom://[Debian GNU/Linux 12]/ bookworm\n",
        _USUAL.replace("bookworm", "noble"),
    ],
)
def test_a_host_without_a_mirror_of_debian_is_told_what_to_say(listing: str) -> None:
    assert _refused(listing, is_debian=False).advice == "say --mirror URL"
    no_security = _refused(listing, BuildPlan(mirror=_DEBIAN), is_debian=False)
    assert no_security.advice == "say --security-mirror URL"


def test_a_password_in_a_source_is_refused_and_not_repeated() -> None:
    error = _refused(_USUAL.replace("http://mirror", "http://me:hush@mirror"))
    assert "hush" not in error.summary + error.advice
    assert "/etc/apt/auth.conf.d/" in error.advice


def test_what_a_build_cannot_use_is_refused() -> None:
    assert "tor+http" in _refused(_USUAL.replace("http://", "tor+http://")).summary


def test_of_a_list_of_mirrors_the_most_preferred_one_is_taken(tmp_path: Path) -> None:
    place = tmp_path / "debian.list"
    listing = _listing(f"mirror+file:{place}/ bookworm", f"{_SECURITY} bookworm-security")
    place.write_text("# ours\n\nhttp://a.example.org/debian\thttps://unused\nhttp://b.example.org/debian/\n")
    assert choose(BuildPlan(), listing, is_debian=True).packages == "http://a.example.org/debian"
    place.write_text("http://a.example.org/debian\tpriority:2\nhttp://b.example.org/debian/\tpriority:1\n")
    assert choose(BuildPlan(), listing, is_debian=True).packages == "http://b.example.org/debian"
    for broken in (lambda: place.write_text("\n"), place.unlink):
        broken()
        assert _refused(listing).advice
