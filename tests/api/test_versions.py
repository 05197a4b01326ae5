"""Version documents and the negotiation of microversions, on both listeners."""

from __future__ import annotations

import pytest

from tests.api.service import Client, Service, fault, message

HEADER = "X-OpenStack-Ironic-API-Version"


def test_bare_metal_root_is_what_keystoneauth_discovers(bare_metal: Client) -> None:
    body = bare_metal.get("/").json
    assert body["default_version"] == body["versions"][0]
    version = body["versions"][0]
    assert (version["id"], version["status"], version["min_version"], version["version"]) == (
        "v1",
        "CURRENT",
        "1.1",
        "1.115",
    )
    assert version["links"][0]["href"].endswith("/v1/")


def test_v1_document_names_resources_of_the_asked_microversion(service: Service) -> None:
    newest = service.client("1.84").get("/v1").json
    assert newest["id"] == "v1"
    assert {"nodes", "ports", "drivers", "lookup", "heartbeat", "continue_inspection"} <= set(newest)
    assert newest["version"]["version"] == "1.115"
    oldest = service.client("1.1").get("/v1/").json
    assert "lookup" not in oldest
    assert "continue_inspection" not in oldest


def test_every_answer_says_the_range_and_the_version(bare_metal: Client) -> None:
    for answer in (bare_metal.get("/v1/nodes"), bare_metal.get("/v1/nodes/nobody")):
        assert answer.headers["X-OpenStack-Ironic-API-Minimum-Version"] == "1.1"
        assert answer.headers["X-OpenStack-Ironic-API-Maximum-Version"] == "1.115"
        assert answer.headers[HEADER] == "1.115"
    unknown = bare_metal.get("/v1/nothing")
    assert unknown.status_code == 404
    assert unknown.headers["X-OpenStack-Ironic-API-Maximum-Version"] == "1.115"


def test_version_is_negotiated(service: Service) -> None:
    for headers, served in [
        ({}, "1.1"),
        ({HEADER: "1.31"}, "1.31"),
        ({HEADER: "latest"}, "1.115"),
        ({"OpenStack-API-Version": "baremetal 1.46"}, "1.46"),
        ({"OpenStack-API-Version": "compute 2.1, baremetal latest"}, "1.115"),
        ({"OpenStack-API-Version": "compute 2.1"}, "1.1"),
    ]:
        answer = service.client(None).get("/v1/nodes", headers=headers)
        assert answer.status_code == 200, headers
        assert answer.headers[HEADER] == served, headers


def test_unsupported_version_is_406_with_the_range(service: Service) -> None:
    for version in ["1.0", "1.116", "2.0", "1", "x.y"]:
        answer = service.client(version).get("/v1/nodes")
        assert answer.status_code == 406, version
        assert answer.headers["X-OpenStack-Ironic-API-Maximum-Version"] == "1.115", version
        assert "1.115" in fault(answer), version


def test_introspection_root_and_v1(introspection: Client) -> None:
    root = introspection.get("/")
    assert root.json["versions"][0]["id"] == "1.18"
    assert root.headers["X-OpenStack-Ironic-Inspector-API-Minimum-Version"] == "1.0"
    assert root.headers["X-OpenStack-Ironic-Inspector-API-Maximum-Version"] == "1.18"
    assert {item["name"] for item in introspection.get("/v1").json["resources"]} == {
        "introspection",
        "continue",
        "rules",
    }


@pytest.mark.parametrize(("version", "status"), [("1.19", 406), ("nonsense", 400)])
def test_introspection_refuses_versions_it_has_not(introspection: Client, version: str, status: int) -> None:
    answer = introspection.get("/v1/introspection", version=version)
    assert answer.status_code == status
    assert message(answer)


def test_unknown_paths_speak_the_language_of_their_listener(service: Service) -> None:
    assert "/v1/rulez" in message(service.introspection.get("/v1/rulez"))
    assert "/v1/rulez" in fault(service.bare_metal.get("/v1/rulez"))


def test_method_that_is_not_allowed_is_405_in_json(bare_metal: Client) -> None:
    answer = bare_metal.put("/v1/nodes", {})
    assert answer.status_code == 405
    assert "GET" in answer.headers["Allow"]
    assert "POST" in fault(answer)


def test_trailing_slash_and_head(service: Service) -> None:
    uuid = service.enrol(name="one")
    assert service.bare_metal.get(f"/v1/nodes/{uuid}/").json["uuid"] == uuid
    head = service.bare_metal.call("HEAD", f"/v1/nodes/{uuid}")
    assert (head.status_code, head.content) == (200, b"")


@pytest.mark.parametrize("path", ["inspection_rules/", "inspection_rules//", "inspection_rules/%2f"])
def test_a_delete_that_names_nothing_does_not_delete_the_collection(service: Service, path: str) -> None:
    rule = {"actions": [{"op": "fail", "args": {"msg": "no"}}]}
    service.bare_metal.post("/v1/inspection_rules", rule)
    answer = service.bare_metal.delete(f"/v1/{path}")
    assert (answer.status_code, "inspection_rules/" in fault(answer)) == (404, True)
    answer = service.introspection.delete(f"/v1/{path.replace('inspection_', '')}")
    assert (answer.status_code, "rules/" in message(answer)) == (404, True)
    assert len(service.bare_metal.get("/v1/inspection_rules/").json["inspection_rules"]) == 1
    assert service.bare_metal.delete("/v1/inspection_rules").status_code == 204


def test_public_url_is_used_for_bare_metal_links_only(sqlite_url: str) -> None:
    service = Service(sqlite_url, public_url="https://metal.example.org/")
    assert service.bare_metal.get("/").json["versions"][0]["links"][0]["href"] == "https://metal.example.org/v1/"
    assert ":5050/v1" in service.introspection.get("/").json["versions"][0]["links"][0]["href"]


def test_healthcheck_without_database_is_503(sqlite_url: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    service = Service(f"sqlite:///{tmp_path_factory.mktemp('gone')}/missing/ferroscope.db")
    answer = service.bare_metal.get("/healthcheck")
    assert answer.status_code == 503
    assert "sqlite" not in answer.text.lower()
    listed = service.bare_metal.get("/v1/nodes")
    assert listed.status_code == 503
    assert listed.headers["Retry-After"] == "1"
