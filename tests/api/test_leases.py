"""Leases through the API: one holder at a time, named by epoch and token."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ferroscope.api.auth.identity import local
from ferroscope.api.service import leases
from ferroscope.config.options import LeaseSettings, PolicySettings
from ferroscope.db import Transaction
from ferroscope.leadership import Election
from ferroscope.runtime.system import SystemClock
from tests.api.callers import As, service_for
from tests.api.service import Client, Service, fault
from tests.support.processes import until

NAME = "/v1/leases/backup/nightly"


def _take(client: Client, path: str = NAME, holder: str = "me", duration: float = 60, **more: Any) -> Any:
    answer = client.post(path, {"holder": holder, "duration": duration, **more})
    assert answer.status_code == 201, answer.text
    return answer.json


def test_a_free_lease_is_taken_with_epoch_and_token(service: Service) -> None:
    lease = _take(service.bare_metal, data="host=a")
    assert (lease["name"], lease["holder"], lease["epoch"]) == ("backup/nightly", "me", 1)
    assert (lease["duration"], lease["data"], lease["own"]) == (60, "host=a", False)
    assert 59 < lease["remaining"] <= 60
    assert lease["token"]


def test_a_held_lease_is_refused_with_its_holder_and_what_remains(service: Service) -> None:
    _take(service.bare_metal)
    answer = service.bare_metal.post(NAME, {"holder": "other", "duration": 5})
    assert answer.status_code == 409
    assert "me in epoch 1" in fault_of(answer)
    assert (answer.json["lease"]["holder"], answer.json["lease"]["epoch"]) == ("me", 1)
    assert 50 < answer.json["lease"]["remaining"] <= 60
    assert 50 < int(answer.headers["Retry-After"]) <= 60
    assert "token" not in answer.json["lease"]
    assert service.bare_metal.post(NAME, {"holder": "me", "duration": 5}).status_code == 409


def test_who_was_refused_is_listed_until_he_has_it(service: Service) -> None:
    client = service.bare_metal
    mine = _take(client)
    assert client.get(NAME).json["candidates"] == []
    for holder in ("one", "two", "one"):
        assert client.post(NAME, {"holder": holder, "duration": 5}).status_code == 409
    waiting = client.get(NAME).json["candidates"]
    assert [one["holder"] for one in waiting] == ["one", "two"]
    assert all(one["asked_at"] for one in waiting)
    client.delete(f"{NAME}?epoch={mine['epoch']}&token={mine['token']}")
    _take(client, holder="two")
    assert [one["holder"] for one in client.get(NAME).json["candidates"]] == ["one"]


def fault_of(answer: Any) -> str:
    """Return the message of a 409 that shows the lease as well."""
    return str(fault(answer))


def test_only_epoch_and_token_renew(service: Service) -> None:
    client = service.bare_metal
    lease = _take(client, data="a")
    mine = {"epoch": lease["epoch"], "token": lease["token"]}
    for wrong in (mine | {"epoch": 2}, mine | {"token": "x"}, mine | {"epoch": 2**63 - 1}):
        answer = client.put(NAME, wrong)
        assert answer.status_code == 409, answer.text
        assert answer.json["lease"]["holder"] == "me"
    kept = client.put(NAME, mine).json
    assert (kept["duration"], kept["data"], kept["epoch"], kept["token"]) == (60, "a", 1, lease["token"])
    changed = client.put(NAME, mine | {"duration": 600, "data": "b"}).json
    assert (changed["duration"], changed["data"]) == (600, "b")
    assert changed["remaining"] > 590


@pytest.mark.parametrize("where", ["query", "body"])
def test_a_released_lease_is_free_and_its_next_epoch_is_greater(service: Service, where: str) -> None:
    client = service.bare_metal
    lease = _take(client)
    mine = {"epoch": lease["epoch"], "token": lease["token"]}
    query = f"{NAME}?epoch={lease['epoch']}&token={lease['token']}"
    assert client.delete(f"{NAME}?epoch=1&token=wrong").status_code == 409
    answer = client.delete(query) if where == "query" else client.call("DELETE", NAME, mine)
    assert answer.status_code == 204, answer.text
    free = client.get(NAME).json
    assert (free["holder"], free["remaining"], free["epoch"]) == (None, 0, 1)
    assert client.delete(query).status_code == 409, "it is over"
    assert client.put(NAME, mine).status_code == 409
    successor = _take(client, holder="other")
    assert successor["epoch"] == 2
    assert successor["token"] != lease["token"]
    assert client.put(NAME, mine).status_code == 409


def test_an_expired_lease_is_free_and_may_be_taken_in_a_new_epoch(service: Service) -> None:
    client = service.bare_metal
    lease = _take(client, duration=1)
    assert until(lambda: client.get(NAME).json["holder"] is None)
    assert _take(client, holder="other")["epoch"] == 2
    answer = client.put(NAME, {"epoch": 1, "token": lease["token"]})
    assert answer.status_code == 409
    assert answer.json["lease"]["holder"] == "other"


def test_of_many_at_once_one_wins(everywhere: Service) -> None:
    def ask(number: int) -> int:
        asked = {"holder": f"candidate-{number}", "duration": 60}
        return int(everywhere.client().post("/v1/leases/backup", asked).status_code)

    with ThreadPoolExecutor(8) as pool:
        statuses = list(pool.map(ask, range(16)))
    assert sorted(statuses) == [201] + [409] * 15
    assert everywhere.bare_metal.get("/v1/leases/backup").json["epoch"] == 1


def test_the_services_own_leases_are_read_but_not_taken(service: Service) -> None:
    store = service.backend.lease_store
    profile = LeaseSettings().numbers()
    election = Election("periodic/timeouts", "member", store=store, clock=SystemClock(), profile=profile)
    leadership = election.campaign()
    assert leadership is not None
    client = service.bare_metal
    seen = client.get("/v1/leases/periodic/timeouts").json
    assert (seen["holder"], seen["own"]) == ("member", True)
    assert "token" not in seen
    mine = {"epoch": leadership.claim.epoch, "token": leadership.claim.token}
    taking = {"holder": "me", "duration": 5}
    for own in ("periodic/timeouts", "periodic/new", "pxe/net", "reboot-throttle", "failover/x"):
        answer = client.post(f"/v1/leases/{own}", taking)
        assert answer.status_code == 403
        assert own in fault(answer)
        assert client.put(f"/v1/leases/{own}", mine).status_code == 403
        assert client.call("DELETE", f"/v1/leases/{own}", mine).status_code == 403
    assert leadership.renew()
    assert client.post("/v1/leases/periodic-report", taking).status_code == 201


def test_leases_are_listed_by_name_and_prefix(service: Service) -> None:
    client = service.bare_metal
    for name in ("b", "a/2", "a/1", "A/3", "a%2F4"):
        _take(client, f"/v1/leases/{name}")
    names = [lease["name"] for lease in client.get("/v1/leases?prefix=a/").json["leases"]]
    assert names == ["a/1", "a/2", "a/4"]
    listed = client.get("/v1/leases").json["leases"]
    assert [lease["name"] for lease in listed] == ["A/3", "a/1", "a/2", "a/4", "b"]
    assert all("token" not in lease for lease in listed)
    assert client.get("/v1/leases?prefix=%25").json["leases"] == []


def test_an_acquisition_out_of_bounds_is_400(bare_metal: Client) -> None:
    for body in [
        {},
        {"holder": "", "duration": 5},
        {"holder": "me", "duration": 0.5},
        {"holder": "me", "duration": 86401},
        {"holder": "me", "duration": 5, "data": "x" * 5000},
        {"holder": "me", "duration": 5, "epoch": 7},
    ]:
        assert bare_metal.post(NAME, body).status_code == 400, body
        assert bare_metal.get(NAME).status_code == 404, body


def test_a_name_that_no_lease_can_have_is_refused(bare_metal: Client) -> None:
    for name in ["x" * 201, "a//b", "%00", "%ff", "..", "a/%2E/"]:
        answer = bare_metal.post(f"/v1/leases/{name}", {"holder": "me", "duration": 5})
        assert answer.status_code in (400, 404), (name, answer.text)
        assert bare_metal.get("/v1/leases").json["leases"] == [], name


@pytest.mark.parametrize("query", ["", "?epoch=1", "?epoch=999999999999999999999&token=x"])
def test_a_release_needs_epoch_and_token_once(bare_metal: Client, query: str) -> None:
    lease = _take(bare_metal)
    assert bare_metal.delete(f"{NAME}{query}").status_code == 400
    both = bare_metal.call("DELETE", f"{NAME}?epoch=999&token=x", {"epoch": lease["epoch"], "token": lease["token"]})
    assert both.status_code == 400
    assert bare_metal.get(NAME).json["holder"]


def test_an_operator_deletes_a_name_and_its_epochs_do_not_come_back(service: Service) -> None:
    client, name = service.bare_metal, "/v1/lease_names/backup/nightly"
    lease = _take(client)
    refused = client.delete(name)
    assert (refused.status_code, refused.json["lease"]["holder"]) == (409, "me")
    assert client.delete(f"{NAME}?epoch=1&token={lease['token']}").status_code == 204
    assert client.delete(name).status_code == 204
    assert client.get(NAME).status_code == 404
    assert client.delete(name).status_code == 404
    assert _take(client)["epoch"] == 2
    assert client.delete("/v1/lease_names/periodic/timeouts").status_code == 403


def test_an_operator_takes_a_lease_from_its_holder(service: Service) -> None:
    client, name = service.bare_metal, "/v1/lease_names/backup/nightly"
    lease = _take(client)
    assert client.delete(name).status_code == 409
    assert client.delete(f"{name}?held=true").status_code == 204
    # The holder is held off by everything that it can do with its token.
    renewal = {"epoch": lease["epoch"], "token": lease["token"]}
    assert client.put(NAME, renewal).status_code == 404
    body = {"driver": "fake-hardware"}
    held = {"If-Lease": f"backup/nightly/{lease['epoch']}/{lease['token']}"}
    assert client.post("/v1/nodes", body, headers=held).status_code == 412
    after = _take(client)
    assert after["epoch"] > lease["epoch"]
    assert client.put(NAME, renewal).status_code == 409
    assert client.delete("/v1/lease_names/periodic/timeouts?held=true").status_code == 403


def test_one_source_cannot_use_up_the_names_and_unused_ones_make_room(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "MAX_NAMES", 6)
    service = Service(sqlite_url, max_lease_names=4)
    client = service.bare_metal
    taken: dict[str, Any] = {}

    def take(name: str, source: str, duration: float = 60) -> int:
        body = {"holder": "x", "duration": duration, "data": "x" * 4096}
        answer = client.post(f"/v1/leases/{name}", body, remote_addr=source)
        taken[name] = answer.json
        return int(answer.status_code)

    assert [take(f"atk/{n}", "192.0.2.66") for n in range(6)] == [201] * 4 + [403] * 2
    assert [take(f"prod/{n}", "192.0.2.7") for n in range(3)] == [201, 201, 403]
    monkeypatch.setattr(leases, "IDLE_SECONDS", -100.0)  # those taken for 60 s were not used for so long
    assert take("prod/2", "192.0.2.7") == 403, "they are held"
    held = taken["atk/0"]
    assert client.delete(f"/v1/leases/atk/0?epoch={held['epoch']}&token={held['token']}").status_code == 204
    assert take("prod/2", "192.0.2.7") == 201
    assert client.get("/v1/leases/atk/0").status_code == 404


def test_quotas_are_of_the_longest_prefix_then_of_the_user_then_of_everybody(sqlite_url: str) -> None:
    identities = {name: local(name, "token", ["member"]) for name in ("ann", "controller")}
    quotas = {"backup/": "2", "backup/eu/": "1", "controller": "4", "closed/": "0"}
    service = service_for(sqlite_url, identities, max_lease_names=3, lease_quotas=quotas)

    def take(who: str, *names: str) -> list[int]:
        body = {"holder": who, "duration": 60}
        return [As(service.bare_metal, who)("POST", f"/v1/leases/{name}", body).status_code for name in names]

    assert take("ann", "backup/1", "backup/2", "backup/3", "closed/1") == [201, 201, 403, 403]
    assert take("controller", "backup/4", "backup/eu/1", "backup/eu/2") == [201, 201, 403]
    assert take("ann", "x/1", "x/2") == [201, 403]  # three with those below backup/
    assert take("controller", "a", "b", "c") == [201, 201, 403]


def test_a_caller_with_a_right_by_prefix_sees_and_holds_these_leases_only(sqlite_url: str, tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    by_prefix = '"(role:admin and system_scope:all) or (role:reader and user_name:%(lease.prefix)s)"'
    file.write_text("".join(f'"ferroscope:lease:{name}": {by_prefix}\n' for name in ("get", "hold")))
    identities = {"backup": local("backup", "token", ["reader"]), "root": local("root", "token", ["admin"])}
    service = service_for(sqlite_url, identities, sections={"oslo_policy": PolicySettings(policy_file=str(file))})
    body = {"holder": "h", "duration": 60}
    backup, root = As(service.bare_metal, "backup"), As(service.bare_metal, "root")
    for name, status in (("backup/main", 201), ("backup", 201), ("backups/main", 403), ("other/backup", 403)):
        assert backup("POST", f"/v1/leases/{name}", body).status_code == status, name
    assert root("POST", "/v1/leases/other/backup", body).status_code == 201
    assert backup("GET", "/v1/leases/other/backup").status_code == 403
    listed = {who: [one["name"] for one in who("GET", "/v1/leases").json["leases"]] for who in (backup, root)}
    assert listed == {backup: ["backup", "backup/main"], root: ["backup", "backup/main", "other/backup"]}


def test_the_status_has_no_data_of_others_and_stays_small(service: Service) -> None:
    def fill(tx: Transaction) -> None:
        for number in range(400):
            tx.leases.acquire(f"atk/{number}", "x", 60, data="x" * 4096)

    service.store.write(fill)
    answer = service.bare_metal.get("/v1/status")
    assert len(answer.content) < 40_000
    assert answer.json["leases_total"] == 400
    assert len(answer.json["leases"]) == 50
