"""The inventories of a node over time, what changed between two, reapply, and searches: through the API."""

from __future__ import annotations

import base64
from typing import Any
from urllib.parse import quote

import pytest

from ferroscope.contracts.store import packed
from ferroscope.hardware import search_index
from tests.api.service import Service, callback_body, fault
from tests.support import examples


def inspect(service: Service, ident: str, mac: str, **inventory: object) -> None:
    service.wait(ident, mac=mac)
    nic = {"name": "eth0", "mac_address": mac}
    body = {"inventory": {"interfaces": [nic], **inventory}, "configuration": {"n": 1}}
    answer = service.bare_metal.post("/v1/continue_inspection", body, version="1.1")
    assert answer.status_code == 202, answer.text
    service.finish(ident)


@pytest.fixture
def inspected(service: Service) -> str:
    """Return a node that was inspected twice; a disk was replaced and memory added in between."""
    ident, mac = service.enrol(name="n"), examples.mac()
    disk = {"name": "/dev/sda", "size": 480 * 10**9, "rotational": False}
    inspect(service, ident, mac, memory={"physical_mb": 1024}, disks=[disk | {"serial": "S1"}])
    inspect(service, ident, mac, memory={"physical_mb": 2048}, disks=[disk | {"serial": "S2"}])
    return ident


def test_every_inspection_with_data_is_a_revision(service: Service, inspected: str) -> None:
    service.wait(inspected)
    service.fail(inspected)
    found = service.bare_metal.get("/v1/nodes/n/inventory/revisions").json["revisions"]
    assert [(one["number"], one["state"], one["stored_in"]) for one in found] == [
        (1, "finished", "database"),
        (2, "finished", "database"),
    ]
    assert found[1]["inspection"] != service.node(inspected).inspection


def test_a_revision_by_its_number(service: Service, inspected: str) -> None:
    for revision, memory in [("1", 1024), ("-1", 2048), ("2", 2048), ("-2", 1024)]:
        answer = service.bare_metal.get(f"/v1/nodes/n/inventory?revision={revision}")
        assert answer.json["inventory"]["memory"]["physical_mb"] == memory, revision
        assert answer.json["plugin_data"] == {"valid_interfaces": {}}, revision


def test_a_revision_by_its_inspection(service: Service, inspected: str) -> None:
    first = service.bare_metal.get("/v1/nodes/n/inventory/revisions").json["revisions"][0]["inspection"]
    answer = service.bare_metal.get(f"/v1/nodes/n/inventory?revision={first}")
    assert answer.json["inventory"]["memory"]["physical_mb"] == 1024


def test_a_revision_that_there_is_not(service: Service, inspected: str) -> None:
    for revision, status, words in [
        ("3", 404, "2"),
        ("0", 400, "revision 0"),
        ("1_0", 400, "revision"),
        ("9" * 30, 400, "1"),
    ]:
        answer = service.bare_metal.get(f"/v1/nodes/n/inventory?revision={revision}")
        assert answer.status_code == status, revision
        assert words in fault(answer), revision


def test_what_changed_since_the_inspection_before(service: Service, inspected: str) -> None:
    found = service.bare_metal.get("/v1/nodes/n/inventory/diff").json
    assert [change["text"] for change in found["changes"]] == [
        "machine: memory 1 GiB -> 2 GiB",
        "disk /dev/sda was replaced: ssd, 480 GB, serial S1 -> ssd, 480 GB, serial S2",
    ]
    assert (found["before"]["number"], found["after"]["number"]) == (1, 2)
    assert service.bare_metal.get("/v1/nodes/n/inventory/diff?before=2&after=2").json["changes"] == []


def test_there_is_nothing_to_compare_before_the_second_inspection(service: Service) -> None:
    service.inspect(service.enrol(name="once"))
    answer = service.bare_metal.get("/v1/nodes/once/inventory/diff")
    assert answer.status_code == 404
    assert "Revision -2" in fault(answer)


def test_reapply_of_a_node_without_data(service: Service) -> None:
    service.enrol(name="fresh")
    assert service.bare_metal.post("/v1/nodes/fresh/inventory/reapply").status_code == 404


def known(service: Service, name: str, **inventory: object) -> str:
    """Enrol a node with the search index of this inventory."""
    ident = service.enrol(name=name)
    found = search_index.learn(inventory, {})

    def work(tx):  # type: ignore[no-untyped-def]
        node = tx.nodes.get(ident)
        node.search_digest, node.hardware = found.digest, found.summary
        tx.nodes.update(node)
        tx.search_index.replace(ident, found.rows, had=False)

    service.store.write(work)
    return ident


def search(service: Service, query: str, more: str = "") -> list[str]:
    answer = service.bare_metal.get(f"/v1/search?q={quote(query)}{more}")
    assert answer.status_code == 200, answer.text
    return [node["name"] for node in answer.json["nodes"]]


def test_search_finds_by_hardware_and_tells_what_it_is(service: Service) -> None:
    known(service, "big", memory={"physical_mb": 524288}, cpu={"count": 64, "model_name": "X"})
    known(service, "small", memory={"physical_mb": 1024}, system_vendor={"serial_number": "ABC"})
    service.enrol(name="never")
    assert search(service, "memory_gb >= 512") == ["big"]
    assert search(service, "serial == abc") == ["small"]
    assert sorted(search(service, "has node")) == ["big", "small"]
    assert search(service, "name == NEVER or never") == ["never"]
    (found,) = service.bare_metal.get("/v1/search?q=has+cpu").json["nodes"]
    assert (found["memory_gb"], found["cpus"], found["cpu"]) == (512.0, 64, "X")


def test_a_query_that_cannot_be_understood_is_400(service: Service) -> None:
    for query in ["", "memry > 1"]:
        assert service.bare_metal.get(f"/v1/search?q={quote(query)}").status_code == 400, query


def test_two_machines_are_compared_place_by_place_without_what_is_their_own(service: Service, inspected: str) -> None:
    other = service.enrol(name="m")
    disk = {"name": "/dev/sda", "size": 960 * 10**9, "rotational": False, "serial": "S3"}
    inspect(service, other, examples.mac(), memory={"physical_mb": 2048}, disks=[disk])
    inspect(service, other, examples.mac(), memory={"physical_mb": 4096}, disks=[disk])
    found = service.bare_metal.get("/v1/nodes/n/inventory/diff?other=m&after=1").json
    assert (found["node"], found["other"]) == (inspected, other)
    assert [(one["what"], one["kind"], one["field"]) for one in found["changes"]] == [("changed", "disk", "size")]
    newest = service.bare_metal.get(f"/v1/nodes/n/inventory/diff?other={other}").json["changes"]
    assert {one["field"] for one in newest} == {"memory", "size"}


def test_a_machine_and_itself_are_two_inspections_of_one(service: Service, inspected: str) -> None:
    found = service.bare_metal.get(f"/v1/nodes/n/inventory/diff?other={inspected}").json
    assert found["other"] is None
    assert {one["kind"] for one in found["changes"]} == {"node", "disk"}


def test_no_machine_is_compared_with_one_that_is_not_there(service: Service, inspected: str) -> None:
    assert service.bare_metal.get("/v1/nodes/n/inventory/diff?other=nobody").status_code == 404
    assert service.bare_metal.get("/v1/nodes/n/inventory/diff?other=a%20b").status_code == 400


def test_inventories_of_too_many_parts_are_not_compared(service: Service, inspected: str) -> None:
    node = service.node(inspected)
    bomb = b'{"interfaces":[],"x":[' + b"[]," * 60_000 + b"0]}"
    service.store.write(lambda tx: tx.data.save(str(node.inspection), node.uuid, packed({"inventory": bomb})))
    answer = service.bare_metal.get("/v1/nodes/n/inventory/diff")
    assert (answer.status_code, "50000" in fault(answer)) == (400, True)
    assert service.bare_metal.get("/v1/nodes/n/inventory").status_code == 200


def test_a_ramdisks_log_is_kept_apart_also_where_its_inspection_failed(service: Service) -> None:
    ident = service.enrol(name="n")
    mac = service.wait(ident)
    body = callback_body(mac) | {"logs": base64.b64encode(b"an archive").decode()}
    assert service.bare_metal.post("/v1/continue_inspection", body, version="1.1").status_code == 202
    service.fail(ident)
    answer = service.bare_metal.get("/v1/nodes/n/log")
    assert (answer.status_code, answer.content) == (200, b"an archive")
    inspection = service.node(ident).inspection
    assert service.bare_metal.get(f"/v1/nodes/n/log?inspection={inspection}").content == b"an archive"
    assert service.bare_metal.get(f"/v1/nodes/n/log?inspection={ident}").status_code == 404
    unprocessed = service.introspection.get(f"/v1/introspection/{ident}/data/unprocessed").json
    assert "logs" not in unprocessed
    assert service.store.write(lambda tx: tx.data.remove_logs(tx.data.find_logs([str(inspection)]))) == 1
    assert service.bare_metal.get("/v1/nodes/n/log").status_code == 404


@pytest.mark.parametrize("logs", ["no base64 at all!", None, {"a": 1}])
def test_a_log_that_is_no_archive_fails_nothing(service: Service, logs: Any) -> None:
    ident = service.enrol()
    body = callback_body(service.wait(ident)) | {"logs": logs}
    assert service.bare_metal.post("/v1/continue_inspection", body, version="1.1").status_code == 202
    assert service.bare_metal.get(f"/v1/nodes/{ident}/log").status_code == (404 if logs is None else 200)
