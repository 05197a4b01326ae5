"""What members tell of themselves, and what is concluded from it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from ferroscope.config.load import load
from ferroscope.config.options import (
    ApiSettings,
    DatabaseSettings,
    DriverSettings,
    LeaseSettings,
    PxeFilterSettings,
    RegistrySettings,
    Settings,
    WorkerSettings,
)
from ferroscope.core import finding
from ferroscope.core.model import Member
from ferroscope.telemetry.members import about, fingerprints, summary
from tests import ROOT
from tests.support import examples


def _member(host: str, settings: Settings | None = None, **detail: object) -> Member:
    found = about(settings or Settings(), ["worker"], "0003", skew=0.0, loops={})
    return Member(id=host, host=host, pid=7, role="worker", detail=found | detail)


def test_members_with_the_same_settings_do_not_drift() -> None:
    own = Settings(
        api=ApiSettings(host=("127.0.0.1",), bare_metal_port=1, threads=3),
        database=DatabaseSettings(connection="sqlite:///elsewhere.db", pool_size=3),
        worker=WorkerSettings(threads=9),
    )
    assert finding.drift([_member("a"), _member("b", own)]) == [], "these may differ from process to process"


def test_the_simulators_drivers_are_no_difference() -> None:
    simulated = Settings(drivers=DriverSettings(enabled=("redfish", "ipmi", "sim", "fake-hardware")))
    assert finding.drift([_member("a"), _member("b", simulated)]) == []
    (found,) = finding.drift([_member("a"), _member("b"), _member("c", Settings(drivers=DriverSettings(enabled=())))])
    assert "[drivers]" in found.summary


def test_a_member_with_other_settings_is_named_with_its_section() -> None:
    fast = Settings(lease=LeaseSettings(profile="fast"))
    (found,) = finding.drift([_member("a"), _member("b"), _member("odd", fast)])
    assert found.code == "settings-differ"
    assert "[lease]" in found.summary
    assert "worker@odd:7" in found.summary
    assert "worker@a" not in found.summary


def test_only_the_section_that_differs_is_named(tmp_path: Path) -> None:
    (tmp_path / "f.conf").write_text("[auto_discovery]\nenabled = true\n")
    discovers = load([str(tmp_path / "f.conf")])
    (found,) = finding.drift([_member("a", load([])), _member("b", load([])), _member("c", discovers)])
    assert "[auto_discovery]" in found.summary
    pxe_filter = Settings(pxe_filter=PxeFilterSettings(unknown_hosts="allow"))
    (found,) = finding.drift([_member("a"), _member("b"), _member("c", pxe_filter)])
    assert "[pxe_filter]" in found.summary


def test_the_pods_of_a_shipped_overlay_do_not_drift(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only some of them use a coordination service, or serve the API."""

    def member(conf: str, *roles: str) -> Member:
        found = about(load([str(ROOT / "deploy/kubernetes" / conf)]), roles, "0003", skew=0.0, loops={})
        return Member(id=roles[0], host=roles[0], pid=1, role=roles[0], detail=found)

    others = [member("failover/ferroscope.conf", "failover"), member("pxe-filter/ferroscope.conf", "pxe-filter")]
    monkeypatch.setenv("OS_INSPECTOR__CALLBACK_ENDPOINT_OVERRIDE", "https://inspector.example.org:6385")  # as the page
    api = member("base/ferroscope.conf", "api")
    monkeypatch.setenv("OS_COORDINATION__BACKEND", "kubernetes")  # as worker-leases.yaml
    worker = member("base/ferroscope.conf", "worker", "periodic")
    assert finding.drift([api, worker, *others]) == []
    monkeypatch.setenv("OS_COORDINATION__BACKEND", "sql")
    second = member("base/ferroscope.conf", "worker", "periodic")
    (found,) = finding.drift([api, worker, second, *others])
    assert "[coordination]" in found.summary


def test_members_of_different_releases_are_named() -> None:
    (found,) = finding.drift([_member("a"), _member("b", version="0.0.1")])
    assert found.code == "releases-differ"
    assert "0.0.1 (worker@b:7)" in found.summary


def test_no_secret_is_part_of_what_is_reported() -> None:
    settings = Settings(database=DatabaseSettings(connection="postgresql://me:hunter2@db/x"))
    other = Settings(database=DatabaseSettings(connection="postgresql://me:other@db/x"))
    found = about(settings, ["api"], "0003", skew=None, loops={})
    assert "hunter2" not in msgspec.json.encode(found).decode()
    assert found["settings"].items() <= fingerprints(other).items(), "not even as a digest"
    assert "database" in found["settings"]


def test_a_clock_that_is_far_off_is_named_once_per_host() -> None:
    members = [_member("a", clock_skew=0.4), _member("b", clock_skew=-7.25), _member("b", clock_skew=-7.5)]
    (found,) = finding.clock_skews(members)
    assert found.code == "clock-skew"
    assert "b is 7.5 s" in found.summary


def _lived(ident: str, started: float, until: float, host: str = "a", role: str = "worker") -> Member:
    detail = {"heartbeat": 6.0}
    return Member(id=ident, host=host, pid=7, role=role, started_at=started, expires_at=until, detail=detail)


def test_each_dead_member_needs_a_successor_of_its_own() -> None:
    now = 1000.0
    first, second = _lived("1", 0.0, 106.0), _lived("2", 0.0, 206.0)
    heir, heirs_heir = _lived("3", 101.0, 506.0), _lived("4", 502.0, now + 3)
    assert finding.missing([first, second], now) == [first, second]
    assert finding.missing([heirs_heir, heir, first], now) == []
    assert finding.missing([first, second, heir, heirs_heir], now) == [heir], "one was started for two"
    assert finding.missing([first, _lived("3", 200.0, now + 3, host="b")], now) == [first], "on another host"
    assert finding.missing([first, _lived("3", 50.0, now + 3)], now) == [first], "it was there before"


def test_a_process_with_all_roles_succeeds_one_of_each() -> None:
    now = 1000.0
    heir = _lived("heir", 300.0, now + 3, role="all")
    gone = [_lived(role, 0.0, 106.0, role=role) for role in ("api", "worker", "periodic")]
    second, boot_host = _lived("second", 0.0, 206.0), _lived("boot", 0.0, 106.0, role="pxe-filter")
    assert finding.missing([*gone, heir], now) == []
    assert finding.missing([*gone, second, boot_host, heir], now) == [boot_host, second]
    part = _lived("part", 300.0, now + 3)
    assert finding.missing([_lived("whole", 0.0, 106.0, role="all"), part], now) != [], "it has one of the roles"


def test_members_that_tell_nothing_or_nonsense_do_no_harm() -> None:
    odd = [
        Member(id="a", host="a", pid=1, role="api"),
        Member(id="b", host="b", pid=1, role="api", detail={"settings": 7, "loops": [], "clock_skew": "x"}),
    ]
    assert finding.drift(odd) == []
    assert finding.clock_skews(odd) == []
    assert odd[1].loops == {}
    assert odd[1].lanes == {}
    nonsense = Member(
        id="c", host="c", pid=1, role="worker", detail={"lanes": {"bmc": {"busy": "x", "slots": 4}, "y": 7}}
    )
    assert nonsense.lanes == {"bmc": {"slots": 4}, "y": {}}


def test_loops_are_reported_in_bounded_length() -> None:
    loops = {f"worker-{n}": "x" * 1000 for n in range(100)}
    found = about(Settings(), [], "0003", skew=1 / 3, loops=loops)
    assert len(msgspec.json.encode(found)) < 20_000
    assert found["clock_skew"] == 0.3333
    assert len(summary(loops)) <= 255
    assert summary({"a": "waits", "b": "waits", "c": "leads"}) == "waits; leads"


def test_a_fingerprint_tells_nothing_of_who_logs_in() -> None:
    def registry(url: str) -> str:
        return fingerprints(Settings(registry=RegistrySettings(url=url)))["registry"]

    assert registry("https://me:one@ironic.example/") == registry("https://you:two@ironic.example/")
    assert registry("https://me:one@ironic.example/") != registry("https://me:one@other.example/")


def test_a_database_that_nobody_left_in_order_may_have_been_restored() -> None:
    now = 1_800_000_000.0
    dead, alive = (examples.member(name, expires_at=now + after) for name, after in (("dead", -3600.0), ("alive", 5.0)))
    found = finding.left_running([dead], now)
    assert found is not None
    assert (found.code, found.verdict) == ("database-restored", "note")
    assert "2027-01-15 07:00 UTC" in found.summary
    just_died = examples.member("b", expires_at=now - 20.0)
    for members_left in ([], [dead, alive], [dead, just_died]):
        assert finding.left_running(members_left, now) is None
