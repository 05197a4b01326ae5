"""Conductors: our workers' hosts. Source of each line: "Conductors (conductors)" of the Bare Metal API reference."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.service import Service
from tests.support import examples
from tests.support.processes import until

DRIVERS = {"a": ["fake-hardware", "sim"], "b": ["fake-hardware"]}


def beat(service: Service, ident: str, host: str, ttl: float = 600.0, **fields: Any) -> None:
    member = examples.member(ident, host=host, **fields)
    service.store.write(lambda tx: tx.members.beat(member, ttl))


@pytest.fixture
def hosts(service: Service) -> Service:
    """Return a service with two workers on host a, one on b, a dead one on c, one that left d, and an api on e."""
    for ident, host in (("a1", "a"), ("a2", "a"), ("b1", "b")):
        beat(service, ident, host, detail={"drivers": DRIVERS[host]})
    beat(service, "c1", "c", ttl=0.0, detail={"drivers": ["sim"]})
    beat(service, "d1", "d", role="all")
    service.store.write(lambda tx: tx.members.leave("d1"))
    beat(service, "e1", "e", role="api")
    return service


def listed(service: Service, query: str = "") -> list[str]:
    answer = service.bare_metal.get(f"/v1/conductors{query}")
    assert answer.status_code == 200, answer.text
    return [one["hostname"] for one in answer.json["conductors"]]


def test_hosts_with_workers_are_conductors_and_alive_while_one_worker_is(hosts: Service) -> None:
    """ "List Conductors": hostname, conductor_group, alive and links; ``detail`` adds drivers and times."""
    found = hosts.bare_metal.get("/v1/conductors").json["conductors"]
    assert {one["hostname"]: one["alive"] for one in found} == {"a": True, "b": True, "c": False, "d": False}
    assert set(found[0]) == {"hostname", "conductor_group", "alive", "links"}
    assert found[0]["conductor_group"] == ""
    detailed = hosts.bare_metal.get("/v1/conductors?detail=true").json["conductors"]
    assert set(detailed[0]) == {*found[0], "drivers", "created_at", "updated_at"}
    drivers = {one["hostname"]: one["drivers"] for one in detailed}
    assert drivers == {**DRIVERS, "c": ["sim"], "d": ["fake-hardware", "sim"]}  # d says nothing: those of the api
    assert hosts.bare_metal.get("/v1/conductors/a").json == next(one for one in detailed if one["hostname"] == "a")
    hosts.store.write(lambda tx: tx.members.leave("a1"))
    assert hosts.bare_metal.get("/v1/conductors/a").json["alive"] is True
    hosts.store.write(lambda tx: tx.members.leave("a2"))
    assert hosts.bare_metal.get("/v1/conductors/a").json["alive"] is False
    beat(hosts, "a1", "a")
    assert hosts.bare_metal.get("/v1/conductors/a").json["alive"] is True


def test_conductors_are_forgotten_after_a_while(hosts: Service) -> None:
    hosts.store.write(lambda tx: tx.members.forget(tx.now + 1))
    assert listed(hosts) == ["a", "b"]


def test_conductors_are_sorted_and_paged(hosts: Service) -> None:
    for query, found in [
        ("?sort_key=hostname&sort_dir=desc", ["d", "c", "b", "a"]),
        ("?sort_key=hostname&limit=2", ["a", "b"]),
        ("?sort_key=hostname&limit=2&marker=b", ["c", "d"]),
    ]:
        assert listed(hosts, query) == found, query
        page = hosts.bare_metal.get(f"/v1/conductors{query}").json
        assert page.get("next", "").endswith("marker=b") == (len(found) == 2 and "b" in found), query


def test_answers(hosts: Service) -> None:
    for path, version, status in [
        # "New in API version 1.49"
        ("/v1/conductors", "1.48", 404),
        ("/v1/conductors/a", "1.48", 404),
        ("/v1/conductors", "1.49", 200),
        ("/v1/conductors/a?fields=alive,drivers", "1.49", 200),
        ("/v1/conductors?fields=hostname,drivers", "1.96", 200),
        ("/v1/conductors?sort_key=updated_at", "1.96", 200),
        ("/v1/conductors?sort_key=alive", "1.96", 400),
        ("/v1/conductors?marker=nothing", "1.96", 404),
        ("/v1/conductors/nothing", "1.96", 404),
        # "List Nodes": the field and the filter ``conductor`` since 1.49
        ("/v1/nodes?conductor=a", "1.48", 406),
        ("/v1/nodes?fields=conductor", "1.48", 406),
        ("/v1/nodes?sort_key=conductor", "1.96", 400),
    ]:
        assert hosts.client(version).get(path).status_code == status, path


def test_nodes_are_spread_over_the_living_hosts_with_their_driver(hosts: Service) -> None:
    client = hosts.bare_metal
    nodes = [hosts.enrol() for _ in range(40)]
    simulated = hosts.enrol(driver="sim")

    def shown() -> dict[str, str | None]:
        return {one["uuid"]: one["conductor"] for one in client.get("/v1/nodes?fields=uuid,conductor").json["nodes"]}

    assert until(lambda: None not in shown().values())  # an api remembers the living hosts for a second
    before = shown()
    assert {before[node] for node in nodes} == {"a", "b"}
    assert before[simulated] == "a"
    assert client.get(f"/v1/nodes/{simulated}").json["conductor"] == "a"
    assert shown() == before
    of_b = [one["uuid"] for one in client.get("/v1/nodes?conductor=b").json["nodes"]]
    assert of_b == [node for node, host in before.items() if host == "b"]
    assert client.get("/v1/nodes?conductor=c").json["nodes"] == []
    hosts.store.write(lambda tx: tx.members.leave("b1"))
    assert until(lambda: set(shown().values()) == {"a"})
    beat(hosts, "b1", "b", detail={"drivers": DRIVERS["b"]})
    assert until(lambda: shown() == before)


def test_no_worker_no_conductor(service: Service) -> None:
    assert service.bare_metal.get(f"/v1/nodes/{service.enrol()}").json["conductor"] is None
    assert listed(service) == []
