"""What the callers of a project may store, counted in the transaction of each change, on each database."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from ferroscope.api.auth.identity import local
from ferroscope.api.baremetal.quotas import PORTS_PER_NODE
from ferroscope_client.core.states import Provision, State
from tests.api.callers import As, service_for
from tests.api.service import Service, callback_body
from tests.support import examples

IDENTITIES = {
    "root": local("root", "token", ["admin"]),
    **{who: local(who, "token", ["admin"], project=who) for who in ("a", "b", "lessee")},
}
Limited = Callable[..., Service]


@pytest.fixture
def limited(sqlite_url: str) -> Limited:
    """Return a function that makes services with options of a test's choice."""
    return partial(service_for, sqlite_url, IDENTITIES)


@pytest.fixture
def limited_everywhere(database_url: str) -> Limited:
    """Do the same on each of the databases."""
    return partial(service_for, database_url, IDENTITIES)


def enroll(service: Service, who: str, **fields: Any) -> Any:
    return As(service.bare_metal, who)("POST", "/v1/nodes", {"driver": "fake-hardware", **fields})


def test_a_project_enrolls_so_many_nodes_and_an_operator_more(limited: Limited) -> None:
    service = limited(max_project_nodes=2)
    first = enroll(service, "a").json["uuid"]
    assert enroll(service, "a").status_code == 201
    refused = enroll(service, "a")
    assert refused.status_code == 403
    assert "max_project_nodes" in refused.text
    assert "quota of project a" in refused.text
    assert len(As(service.bare_metal, "a")("GET", "/v1/nodes").json["nodes"]) == 2
    assert enroll(service, "b").status_code == 201  # another project has a quota of its own
    assert enroll(service, "root", owner="a").status_code == 201
    assert As(service.bare_metal, "a")("DELETE", f"/v1/nodes/{first}").status_code == 204
    assert enroll(service, "a").status_code == 403  # the operator's counts
    assert As(service.bare_metal, "a")("PATCH", f"/v1/nodes/{first}", []).status_code == 404


def test_calls_at_the_same_time_do_not_exceed_it_together(limited_everywhere: Limited) -> None:
    service = limited_everywhere(max_project_nodes=5)
    assert enroll(service, "a").status_code == 201
    with ThreadPoolExecutor(8) as threads:
        codes = [one.status_code for one in threads.map(lambda _: enroll(service, "a"), range(16))]
    assert (codes.count(201), codes.count(403)) == (4, 12)


def test_ports_and_port_groups_count_together(limited: Limited) -> None:
    service = limited(max_project_nodes=1)
    admin = As(service.bare_metal, "a")
    node = enroll(service, "a").json["uuid"]
    stored = [examples.port(service.node(node)) for _ in range(PORTS_PER_NODE - 3)]
    service.store.write(lambda tx: tx.ports.add(stored))
    assert admin("POST", "/v1/ports", {"node_uuid": node, "address": examples.mac()}).status_code == 201
    assert admin("POST", "/v1/portgroups", {"node_uuid": node}).status_code == 201
    assert admin("POST", "/v1/ports", {"node_uuid": node, "address": examples.mac()}).status_code == 201
    for path, body in (
        ("/v1/ports", {"node_uuid": node, "address": examples.mac()}),
        ("/v1/portgroups", {"node_uuid": node}),
    ):
        refused = admin("POST", path, body)
        assert (refused.status_code, "20 ports and port groups" in refused.text) == (403, True)
    assert (
        As(service.bare_metal, "root")("POST", "/v1/ports", {"node_uuid": node, "address": examples.mac()}).status_code
        == 201
    )


def test_bytes_count_wherever_they_are_stored_and_less_is_always_possible(limited_everywhere: Limited) -> None:
    service = limited_everywhere(max_project_bytes=60_000)
    admin, large = As(service.bare_metal, "a"), {"x": "ü" * 10_000}  # 20 kB
    node = enroll(service, "a", extra=large, lessee="lessee").json["uuid"]
    port = admin("POST", "/v1/ports", {"node_uuid": node, "address": examples.mac(), "extra": large}).json["uuid"]
    more = {"op": "add", "path": "/extra", "value": {"x": "x" * 45_000}}
    for who, path in (("a", f"nodes/{node}"), ("lessee", f"nodes/{node}"), ("a", f"ports/{port}")):
        refused = As(service.bare_metal, who)("PATCH", f"/v1/{path}", [more])
        assert (refused.status_code, "max_project_bytes" in refused.text) == (403, True), path
    assert enroll(service, "a", extra=large).status_code == 403
    assert admin("POST", "/v1/portgroups", {"node_uuid": node, "extra": large}).status_code == 403
    less = {"op": "add", "path": "/extra", "value": {}}
    assert As(service.bare_metal, "root")("PATCH", f"/v1/nodes/{node}", [more]).status_code == 200
    assert admin("PATCH", f"/v1/ports/{port}", [less]).status_code == 200  # still above the quota
    assert admin("PATCH", f"/v1/nodes/{node}", [less]).status_code == 200
    assert admin("PATCH", f"/v1/nodes/{node}", [more]).status_code == 200


def test_data_that_a_caller_supplies_counts(limited_everywhere: Limited) -> None:
    service = limited_everywhere(max_project_bytes=60_000)
    node = enroll(service, "a").json["uuid"]
    past = examples.inspection(service.node(node), state=State.FINISHED)
    service.store.write(lambda tx: tx.inspections.add(past))
    service.alter(node, inspection=past.uuid, state=State.FINISHED, provision_state=Provision.MANAGEABLE)
    body = callback_body(examples.mac()) | {"blob": random.Random(1).randbytes(200_000).hex()}
    refused = As(service.bare_metal, "a")("POST", f"/v1/nodes/{node}/inventory/reapply", json.dumps(body))
    assert (refused.status_code, "max_project_bytes" in refused.text) == (403, True)
    assert service.node(node).inspection == past.uuid


def test_without_limits_nothing_is_counted(limited: Limited) -> None:
    service = limited(max_project_nodes=0, max_project_bytes=0)
    assert [enroll(service, "a").status_code for _ in range(3)] == [201] * 3
