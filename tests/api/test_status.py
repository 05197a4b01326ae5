"""GET /v1/status: what one look at the whole says."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest

from ferroscope import transition
from ferroscope.bmc.redfish.driver import RedfishBmc
from ferroscope.config.options import LeaseSettings, RegistrySettings, Settings
from ferroscope.core.boot_macs import FilterRecord
from ferroscope.core.delivery import Fail
from ferroscope.core.model import Member
from ferroscope.runtime import wiring
from ferroscope.telemetry import members
from ferroscope_client.core.reasons import Reason
from tests.api.service import DRIVERS, Client, Service
from tests.support import examples
from tests.support.stores import claim_from


def _beat(service: Service, member: Member, ttl: float = 60.0) -> None:
    service.store.write(lambda tx: tx.members.beat(member, ttl))


def _told(settings: Settings | None = None, **loops: str) -> dict[str, Any]:
    return members.about(settings or Settings(), ["worker"], "0003", skew=0.01, loops=loops)


def _status(service: Service) -> Any:
    answer = service.bare_metal.get("/v1/status")
    assert answer.status_code == 200, answer.text
    return answer.json


def test_an_empty_service_says_what_it_lacks(service: Service) -> None:
    status = _status(service)
    assert status["database"]["kind"] in ("sqlite", "postgresql", "mysql", "mariadb")
    assert status["database"]["schema"] == status["database"]["schema_needed"]
    assert isinstance(status["database"]["clock_skew"], float)
    assert (status["members"], status["leases"], status["queue"], status["nodes"]) == ([], [], [], {})
    assert [(one["code"], one["verdict"], one["advice"]) for one in status["problems"]] == [
        ("no-worker", "wrong", "start one: ferroscope worker")
    ]


def test_members_are_shown_with_their_loops_and_ages(service: Service) -> None:
    detail = _told(**{"worker-0": "found no request that is due"})
    before = time.time()
    _beat(service, examples.member("a", status="waits", detail=detail), ttl=6.0)
    (member,) = _status(service)["members"]
    assert (member["name"], member["alive"], member["status"]) == ("worker@example:42", True, "waits")
    assert member["loops"] == {"worker-0": "found no request that is due"}
    now = time.time()
    for span in ("age", "silent_for"):
        assert before <= now + 0.01 - member[span], "it is no older than its beat; the clock of SQLite has milliseconds"
    assert member["clock_skew"] == 0.01
    assert _status(service)["problems"] == []


def test_the_queue_and_the_nodes_are_counted(service: Service) -> None:
    _beat(service, examples.member("worker-1", detail=_told()))
    for number in range(3):
        node = service.enrol(name=f"n{number}")
        service.bare_metal.put(f"/v1/nodes/{node}/states/provision", {"target": "inspect"})
    claim = claim_from(service.backend.queue, "worker-1", 0.0, service.stop)
    assert claim is not None
    status = _status(service)
    (row,) = status["queue"]
    assert (row["event"], row["waiting"], row["claimed"]) == ("inspect", 2, 1)
    assert 0 <= row["oldest"] < 30
    assert status["nodes"] == {"inspecting": 3}


def test_leases_are_shown_with_the_members_name_and_without_the_token(service: Service) -> None:
    _beat(service, examples.member("member-id"))
    service.store.write(lambda tx: tx.leases.acquire("periodic/timeouts", "member-id", 6.0))
    service.store.write(lambda tx: tx.leases.acquire("backup", "somebody", 6.0))
    foreign, own = _status(service)["leases"]
    assert (own["name"], own["holder"], own["epoch"], own["own"]) == ("periodic/timeouts", "worker@example:42", 1, True)
    assert (foreign["holder"], foreign["own"]) == ("somebody", False)
    assert 0 < own["remaining"] <= 6
    assert "token" not in own


@pytest.mark.parametrize("what", ["dead", "drift", "skew"])
def test_what_is_wrong_has_a_code_and_what_to_do(service: Service, what: str) -> None:
    _beat(service, examples.member("good", detail=_told()))
    found = {
        "dead": _told(),
        "drift": _told(Settings(lease=LeaseSettings(profile="fast"))),
        "skew": _told() | {"clock_skew": 90.0},
    }[what]
    bad = msgspec.structs.replace(examples.member("bad", detail=found), host="bad-host")
    _beat(service, bad, ttl=0.0 if what == "dead" else 60.0)
    (found,) = _status(service)["problems"]
    code, words = {
        "dead": ("member-dead", "worker@bad-host:42"),
        "drift": ("settings-differ", "[lease]"),
        "skew": ("clock-skew", "90.0 s"),
    }[what]
    assert (found["code"], found["verdict"]) == (code, "wrong")
    assert words in found["summary"]
    assert found["advice"]


def test_a_dead_member_whose_successor_lives_is_forgotten(service: Service) -> None:
    def beat(ident: str, ttl: float) -> None:
        _beat(service, examples.member(ident, detail=_told() | {"heartbeat": 0.0}), ttl=ttl)

    for number in range(5):  # a soak: each was killed, and started again
        beat(f"dead-{number}", ttl=0.0)
        service.stop.wait(0.01)
    assert [one["code"] for one in _status(service)["problems"]] == ["no-worker", "member-dead"]
    beat("alive", ttl=60.0)
    status = _status(service)
    assert status["problems"] == []
    assert [(member["id"], member["alive"]) for member in status["members"]] == [("alive", True)]


def test_an_api_that_no_ramdisk_can_reach_is_worth_knowing_where_there_are_real_machines(service: Service) -> None:
    _beat(service, examples.member("worker-1", detail=_told()))
    service.enrol(driver="sim")
    assert _status(service)["problems"] == []
    service.store.write(lambda tx: tx.nodes.add(examples.node(driver="redfish")))
    app = wiring.build_app(service.settings, service.backend, DRIVERS | {"redfish": RedfishBmc()}, process="api")
    client = service.client()
    client._client.app = app
    assert _notes(client) == ["api-on-loopback", "unmanaged-boot"]


def test_an_unmanaged_boot_by_silence_is_reported_until_a_pxe_filter_is_seen(service: Service) -> None:
    _beat(service, examples.member("worker-1", detail=_told()))
    service.store.write(lambda tx: tx.nodes.add(examples.node(driver="redfish")))
    drivers = DRIVERS | {"redfish": RedfishBmc()}
    client = service.client()
    client._client.app = wiring.build_app(service.settings, service.backend, drivers, process="api")
    assert "unmanaged-boot" in _notes(client)
    service.store.write(lambda tx: tx.leases.acquire("pxe/default", "filter-1", 60.0))
    assert "unmanaged-boot" not in _notes(client)


def _notes(client: Client) -> list[str]:
    return [found["code"] for found in client.get("/v1/status").json["problems"] if found["verdict"] == "note"]


def test_pxe_filters_are_shown_by_network_and_one_that_is_open_nowhere_is_a_problem(service: Service) -> None:
    _beat(service, examples.member("worker-1", detail=_told()))
    record = FilterRecord(
        host="boot1", open=True, applied=7, missing=(5,), allowed=2, denied=30, backends=("nftables", "dnsmasq")
    )
    found = msgspec.json.encode(record).decode()
    service.store.write(lambda tx: tx.leases.acquire("pxe/rack-a", "filter-1", 60.0, data=found))
    lease = service.store.write(lambda tx: tx.leases.acquire("pxe/rack-b", "filter-2", 60.0, data=found))
    service.store.write(lambda tx: tx.leases.release(lease))
    service.store.write(lambda tx: tx.leases.acquire("pxe/rack-c", "filter-3", 60.0))
    status = _status(service)
    first, second, third = status["pxe_filters"]
    assert 50 < first.pop("remaining") <= 60
    assert first == {
        "network": "rack-a",
        "open": True,
        "host": "boot1",
        "holder": "filter-1",
        "epoch": 1,
        "allowed": 2,
        "denied": 30,
        "applied": 7,
        "missing": 1,
        "backends": ["nftables", "dnsmasq"],
    }
    assert (second["network"], second["open"], second["holder"]) == ("rack-b", False, None)
    assert (third["network"], third["open"], third["host"]) == ("rack-c", False, None)
    (problem,) = status["problems"]
    assert problem["code"] == "pxe-filter-closed"
    assert "rack-c" in problem["summary"]


def test_what_a_process_finds_wrong_is_a_problem_as_long_as_it_lives(service: Service) -> None:
    wrong = {"code": "registry", "verdict": "wrong", "summary": "it has no nodes at all", "advice": "look"} | {
        "search": ""
    }
    _beat(service, examples.member("a", detail=_told() | {"problems": [wrong, "of another release"]}))
    assert _status(service)["problems"] == [wrong]


def test_a_verification_that_failed_needs_attention_as_much_as_an_inspection(service: Service) -> None:
    _beat(service, examples.member("a", detail=_told()))
    for name in ("r1", "r2"):
        _fail_verification(service, service.enrol(name=name))
    status = _status(service)
    assert status["failed"] == {"bmc-credentials": 2}
    (problem,) = status["problems"]
    assert (problem["code"], problem["search"]) == ("machine-errors", "reason==bmc-credentials")
    found = service.bare_metal.get("/v1/search?q=reason==bmc-credentials").json["nodes"]
    assert sorted(node["name"] for node in found) == ["r1", "r2"]


def _fail_verification(service: Service, uuid: str) -> None:
    failure = Fail(Reason.BMC_CREDENTIALS, "HTTP 401")
    service.store.write(lambda tx: transition.fail_command(tx, tx.nodes.get(uuid, lock=True), failure))


def test_orphans_are_a_problem_listed_and_shown(sqlite_url: str) -> None:
    service = Service(sqlite_url, sections={"registry": RegistrySettings(url="http://ironic.example")})
    _beat(service, examples.member("a", detail=_told()))
    service.enrol(name="kept")
    assert "orphans" not in [problem["code"] for problem in _status(service)["problems"]]
    gone = service.enrol(name="gone")
    service.store.write(lambda tx: tx.nodes.update(msgspec.structs.replace(tx.nodes.get(gone), orphaned_at=1.7e9)))
    assert "orphans" in [problem["code"] for problem in _status(service)["problems"]]
    for query, names in (("orphaned=true", ["gone"]), ("orphaned=false", ["kept"]), ("", ["kept", "gone"])):
        listed = service.bare_metal.get(f"/v1/nodes?{query}").json["nodes"]
        assert [node["name"] for node in listed] == names
    assert service.bare_metal.get(f"/v1/nodes/{gone}").json["orphaned_at"] == "2023-11-14T22:13:20+00:00"
