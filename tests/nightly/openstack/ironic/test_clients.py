"""python-ironicclient and openstacksdk at an attached site: they see the same node at both ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.nightly.openstack.ironic.place import Place, expected
from tests.support.processes import until
from tests.system.clients.environment import Clients, value

_FIELDS = ("uuid", "name", "driver", "properties", "power_state", "provision_state", "owner")


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clients]:
    running = Clients(tmp_path_factory.mktemp("clients"))
    yield running
    running.close()


def shown(clients: Clients, url: str, node: str) -> dict[str, Any]:
    """Return what ``baremetal node show`` prints."""
    ended = clients.command(
        "baremetal", "--os-auth-type", "none", "--os-endpoint", url, "node", "show", node, "-f", "json"
    ).done()
    assert ended.code == 0, ended.err
    found = ended.json()
    return {name: found[name] for name in _FIELDS}


def call(clients: Clients, function: str, bare_metal: str, introspection: str, **arguments: Any) -> Any:
    urls = {"bare_metal": bare_metal, "introspection": introspection}
    return value(clients.function(f"sdk.{function}", {"urls": urls, **arguments}).done())


def test_both_ends_show_the_same_node_before_and_after_its_inspection(place: Place, clients: Clients) -> None:
    uuid, number = place.enroll(properties={"rack": "7"})
    name = f"machine-{number}"
    assert until(lambda: (place.node(uuid) or {}).get("provision_state") == "manageable")
    assert shown(clients, place.url, name) == shown(clients, place.ironic.url, name)
    call(clients, "start_introspection", place.url, place.introspection, node=uuid)
    place.await_state(uuid, "waiting")
    assert place.call_back(number) == 202
    ended = call(clients, "wait_for_introspection", place.url, place.introspection, node=uuid)
    assert (ended["is_finished"], ended["error"]) == (True, None)
    theirs = shown(clients, place.ironic.url, uuid)
    assert theirs["properties"] == {"rack": "7", **theirs["properties"], **expected(number)}
    assert until(lambda: shown(clients, place.url, uuid) == theirs)
    both = [call(clients, "get", url, place.introspection, node=uuid) for url in (place.url, place.ironic.url)]
    assert both[0] == both[1]


def test_what_is_ironics_is_refused_with_its_url(place: Place, clients: Clients) -> None:
    uuid, _ = place.enroll()
    assert until(lambda: place.node(uuid) is not None)
    command = ["baremetal", "--os-auth-type", "none", "--os-endpoint", place.url, "node", "set", uuid, "--owner", "me"]
    ended = clients.command(*command).done()
    assert ended.code != 0
    assert place.ironic.url in ended.err
