"""The OpenAPI document against the application: no 5xx, no undocumented answer, on seeded data."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from ferroscope.api.http.route import Route
from ferroscope.api.routes import ROUTES
from tests.api.callers import service_for
from tests.api.service import Client, Service
from tests.support import databases, examples
from tools.docs.policies import CALLERS

CHECKS = [not_a_server_error, status_code_conformance, response_schema_conformance, content_type_conformance]
EXAMPLES = 3
BODY_KEYS = frozenset({"driver", "name", "node_uuid", "node"})
RULE = {"actions": [{"op": "log", "args": {"msg": "seen"}}]}
OLD_RULE = {"actions": [{"action": "set-capability", "name": "seen", "value": "yes"}]}
IDENTITIES = {name: identity for name, identity in CALLERS.items() if identity is not None}
# Credentials that a call may have; "nobody" is unknown, "" sends none.
CREDENTIALS = (*IDENTITIES, "nobody", "")
VERSIONS = ("X-OpenStack-Ironic-API-Version", "X-OpenStack-Ironic-Inspector-API-Version")


class Seeded:
    """A service with nodes in every state, and the schema that is run against it."""

    def __init__(self, url: str) -> None:
        self.service = Service(url)
        self.nodes = ["enrolled", "nobody"]
        self.service.enrol(name="enrolled")
        for name in ("finished", "waiting", "failed"):
            ident = self.service.enrol(name=name, properties={"list": [1, {"a": None}]}, description="x")
            self.service.inspect(ident)
            self.nodes += [ident, name]
        self.service.wait("waiting")
        self.service.wait("failed")
        self.service.fail("failed")
        self.ports = [port["uuid"] for port in self.service.bare_metal.get("/v1/ports").json["ports"]]
        history = self.service.bare_metal.get("/v1/nodes/finished/history").json["history"]
        self.events = [event["uuid"] for event in history]
        self.rules = [self.service.bare_metal.post("/v1/inspection_rules", RULE).json["uuid"] for _ in range(30)]
        self.rules += [self.service.introspection.post("/v1/rules", OLD_RULE).json["uuid"] for _ in range(30)]
        node = self.service.enrol(conductor_group="g")
        self.service.store.write(lambda tx: tx.members.beat(examples.member("worker-1"), 600.0))
        self.chassis = [self.service.bare_metal.post("/v1/chassis", {}).json["uuid"] for _ in range(30)]
        groups = [self.service.bare_metal.post("/v1/portgroups", {"node_uuid": node}) for _ in range(30)]
        self.portgroups = [group.json["uuid"] for group in groups]
        self.disposable = [self.service.enrol() for _ in range(20)]
        self.rejected = [f"52:54:00:0f:00:{number:02x}" for number in range(20)]
        self.service.backend.store.write(lambda tx: tx.rejections.add("rejected", self.rejected))
        self.schema = schemathesis.openapi.from_wsgi("/openapi.json", self.service.app)
        self.locked = service_for(url, IDENTITIES)
        self.locked_schema = schemathesis.openapi.from_wsgi("/openapi.json", self.locked.app)

    def close(self) -> None:
        self.locked.close()
        self.service.close()

    def known(self, name: str, route: Route) -> list[str]:
        """Return values that exist, for a parameter of a path or a key of a body."""
        nodes = self.disposable if route.operation == "delete_nodes_node" else self.nodes
        return {
            "node": nodes,
            "node_uuid": [ident for ident in nodes if len(ident) == 36],
            "port": self.ports,
            "portgroup": self.portgroups,
            "chassis": self.chassis,
            "hostname": ["example"],
            "trait": ["CUSTOM_A", "HW_CPU_X86_VMX"],
            "rule": self.rules,
            "address": self.rejected,
            "event": self.events,
            "driver": ["sim", "fake-hardware"],
            "key": ["0" * 32],
            "name": [f"name-{number}" for number in range(100)],
            "search": [f"search-{number}" for number in range(20)],
            "number": ["1", "2"],
        }[name]


@pytest.fixture(scope="module")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seeded]:
    """Give the seeded service; one for all routes, because what one does the next has to bear."""
    world = Seeded(databases.sqlite(tmp_path_factory.mktemp("openapi")))
    yield world
    world.close()


@pytest.mark.parametrize("route", ROUTES, ids=[route.operation for route in ROUTES])
def test_route_answers_as_documented(seeded: Seeded, route: Route) -> None:
    for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
        check(seeded, route, mode, EXAMPLES, ())


def check(seeded: Seeded, route: Route, mode: GenerationMode, number: int, credentials: tuple[str, ...]) -> None:
    """Make generated calls, with some of the credentials if there are any."""
    schema = seeded.locked_schema if credentials else seeded.schema
    operation = schema[route.path][route.method]
    if mode is GenerationMode.NEGATIVE and not (operation.body or operation.query):
        return

    @settings(
        max_examples=number,
        deadline=None,
        derandomize=True,
        database=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode), data=st.data())
    def run(case: schemathesis.Case, data: st.DataObject) -> None:
        for name in list(case.path_parameters or {}):
            if data.draw(st.integers(0, 3)):
                case.path_parameters[name] = data.draw(st.sampled_from(seeded.known(name, route)))
        for name in BODY_KEYS & set(case.body if isinstance(case.body, dict) else {}):
            if data.draw(st.integers(0, 5)):
                case.body[name] = data.draw(st.sampled_from(seeded.known(name, route)))
        for header in VERSIONS:
            if header in (case.headers or {}) and data.draw(st.integers(0, 5)):
                case.headers[header] = "latest"
        if credentials and (caller := data.draw(st.sampled_from(credentials))):
            case.headers = {**(case.headers or {}), "X-Auth-Token": caller}
        case.validate_response(case.call(), checks=CHECKS)

    run()


def test_document_is_served_and_names_every_route(bare_metal: Client) -> None:
    document = bare_metal.get("/openapi.json").json
    assert document["openapi"].startswith("3.1")
    served = {(method.upper(), path) for path, item in document["paths"].items() for method in item}
    assert served == {(route.method, route.path) for route in ROUTES}
    operations = [item["operationId"] for path in document["paths"].values() for item in path.values()]
    assert len(set(operations)) == len(operations)


def test_no_two_schemas_have_one_title(bare_metal: Client) -> None:
    titles = [schema["title"] for schema in bare_metal.get("/openapi.json").json["components"]["schemas"].values()]
    assert len(titles) == len(set(titles))
