"""Lists of large items: a page ends at so many bytes, its link goes on without loss, and memory stays the same."""

from __future__ import annotations

import threading
import tracemalloc
from typing import Any

import msgspec
import pytest

from ferroscope.api.errors import UnavailableError
from ferroscope.api.http import large_lists
from ferroscope.contracts.store import Query
from ferroscope.core.model import Chassis, Entry, Inspection, Node, Port, Portgroup, Rule, RuleDialect
from ferroscope.db import Transaction
from ferroscope_client.core.states import State
from tests.api.service import Client, Service
from tests.support import examples

LIMIT = 64 * 1024
NUMBER = 30
PARENT = "1be26c0b-03f2-4d2e-ae87-c02d7f33c123"
EXTRA = {"x": "ü" * 5000}  # 10 kB: six items are more than a page may have


def uuid(number: int) -> str:
    return f"{number:08x}-03f2-4d2e-ae87-c02d7f33c124"


def fill(tx: Transaction) -> None:
    """Add thirty large objects of each kind that is listed."""
    tx.nodes.add(Node(uuid=PARENT, driver="fake-hardware", created_at=1.0))
    for number in range(NUMBER):
        one, at = uuid(number), tx.now + number
        tx.nodes.add(Node(uuid=one, driver="fake-hardware", owner="p", extra=EXTRA, created_at=at))
        tx.chassis.add(Chassis(uuid=one, extra=EXTRA, created_at=at))
        tx.portgroups.add(Portgroup(uuid=one, node=PARENT, extra=EXTRA, created_at=at))
        tx.ports.add([Port(uuid=one, node=PARENT, address=examples.mac(), extra=EXTRA, created_at=at)])
        tx.inspections.add(Inspection(uuid=one, node=PARENT, state=State.ERROR, started_at=at, error=EXTRA["x"]))
        entry = Entry(node=PARENT, inspection=one, step="s", message=EXTRA["x"], process="p", detail=EXTRA)
        tx.journal.append([msgspec.structs.replace(entry, uuid=one)])
        action = {"op": "fail", "args": {"msg": EXTRA["x"]}}
        tx.rules.add(Rule(uuid=one, actions=[action], dialect=RuleDialect.BARE_METAL, created_at=at))


def walk(client: Client, path: str, key: str) -> tuple[list[str], int]:
    """Return the UUIDs of all pages in order, and how many pages there were; no page is too large."""
    found: list[str] = []
    pages = 0
    while path:
        answer = client.get(path)
        assert answer.status_code == 200, answer.text
        items = answer.json[key]
        assert items
        assert len(answer.content) < LIMIT + 1000 or len(items) == 1, len(answer.content)
        found += [one["uuid"] for one in items]
        path, pages = answer.json.get("next", "").replace("http://localhost:6385", ""), pages + 1
    return found, pages


LISTS = [
    ("/v1/nodes/detail?owner=p", "nodes"),
    ("/v1/nodes?owner=p&fields=uuid,extra", "nodes"),
    ("/v1/nodes/detail?owner=p&sort_key=uuid&sort_dir=desc", "nodes"),
    ("/v1/nodes/detail?owner=p&limit=17", "nodes"),
    ("/v1/ports/detail", "ports"),
    (f"/v1/nodes/{PARENT}/ports/detail?sort_key=address", "ports"),
    ("/v1/portgroups/detail", "portgroups"),
    ("/v1/chassis/detail", "chassis"),
    ("/v1/inspection_rules?detail=true", "inspection_rules"),
    (f"/v1/nodes/{PARENT}/inspections", "inspections"),
    (f"/v1/nodes/{PARENT}/history?detail=true", "history"),
    (f"/v1/nodes/{PARENT}/timeline", "inspections"),
]


def test_a_page_ends_at_so_many_bytes_and_the_next_one_goes_on(database_url: str) -> None:
    service = Service(database_url, max_page_size=LIMIT)
    service.store.write(fill)
    for path, key in LISTS:
        found, pages = walk(service.bare_metal, path, key)
        expected = [uuid(number) for number in range(NUMBER)]
        assert sorted(found) == expected, path
        assert NUMBER // 6 <= pages <= NUMBER, path
        if "sort" not in path and "inspections" not in path and "timeline" not in path:
            assert found == expected, path
        if "sort_dir=desc" in path or "inspections" in path.partition("?")[0].split("/")[-1]:
            assert found == expected[::-1], path


def test_the_sizes_are_those_in_bytes_on_each_database(everywhere: Service) -> None:
    everywhere.store.write(fill)

    def read(tx: Transaction) -> list[list[int]]:
        query = Query(filters={"uuid": uuid(1)})
        of: list[Any] = [tx.nodes, tx.ports, tx.chassis, tx.portgroups, tx.inspections, tx.rules]
        return [list(one.sizes(query)) for one in of] + [list(tx.journal.sizes(Query(filters={"uuid": uuid(1)})))]

    for (size,) in everywhere.store.read(read):
        assert 10_000 <= size < 21_000
    assert everywhere.store.read(lambda tx: tx.nodes.sizes(Query(filters={"uuid": uuid(999)}))) == []


def test_small_fields_end_a_page_too_if_much_is_read_for_them(service: Service) -> None:
    """Who may see a node, and whether it has a parent, is among its attributes; of what it has else nothing is read."""
    limited = Service(str(service.settings.database.connection), max_page_size=4096)
    service.store.write(fill)
    found, small = walk(limited.bare_metal, "/v1/nodes?owner=p", "nodes")
    assert len(set(found)) == NUMBER
    service.store.write(_enlarge_attributes)
    found, pages = walk(limited.bare_metal, "/v1/nodes?owner=p", "nodes")
    assert len(set(found)) == NUMBER
    assert pages > 5 > small  # 32 KiB of nodes each, not 4 KiB of what is shown of them


def _enlarge_attributes(tx: Transaction) -> None:
    for node in tx.nodes.list(Query(filters={"owner": "p"})):
        tx.nodes.update(msgspec.structs.replace(node, attributes={"network_data": EXTRA}))


def test_an_item_that_is_larger_than_a_page_is_a_page(service: Service) -> None:
    limited = Service(str(service.settings.database.connection), max_page_size=4096)
    limited.store.write(fill)
    found, pages = walk(limited.bare_metal, "/v1/chassis/detail", "chassis")
    assert (len(found), pages) == (NUMBER, NUMBER)


def test_the_memory_of_a_list_does_not_grow_with_what_is_stored(service: Service) -> None:
    many = {"x": [[]] * 100_000}  # 300 kB, decoded twenty times as many

    def add(tx: Transaction) -> None:
        for number in range(100):
            tx.nodes.add(Node(uuid=uuid(number), driver="fake-hardware", extra=many, created_at=tx.now + number))

    service.store.write(add)
    tracemalloc.start()
    try:
        answer = service.bare_metal.get("/v1/nodes/detail")
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert 8 < len(answer.json["nodes"]) < 40
    assert most < 250 * 2**20, f"{most / 2**20:.0f} MiB"  # all of them would be 700 MiB


def test_large_lists_wait_for_each_other_without_a_connection(service: Service) -> None:
    service.store.write(fill)
    turns = large_lists.Turns(at_once=1, seconds=0.2)
    begun, leave = threading.Event(), threading.Event()

    def large(_tx: Transaction, room: large_lists.Room) -> str:
        room.take(2 * large_lists.LARGE_BYTES)
        begun.set()
        leave.wait(30)
        return "read"

    first = threading.Thread(target=lambda: turns.read(service.store, LIMIT, large))
    first.start()
    assert begun.wait(30)
    try:
        assert (
            turns.read(service.store, LIMIT, lambda _tx, room: room.take(large_lists.LARGE_BYTES)) is None
        )  # not large
        with pytest.raises(UnavailableError, match="Too many large lists"):
            turns.read(service.store, LIMIT, large)
    finally:
        leave.set()
        first.join()
    assert turns.read(service.store, LIMIT, large) == "read"
