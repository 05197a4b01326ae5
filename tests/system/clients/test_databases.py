"""All clients at once on each of the other databases; the other tests are on SQLite."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import databases
from tests.support.examples import mac
from tests.support.servers import Server
from tests.system.clients.environment import Clients, value
from tests.system.clients.site import ended, site


@pytest.mark.parametrize("database", ["postgresql", "mariadb"])
def test_every_client_takes_its_machine_to_its_inventory(
    request: pytest.FixtureRequest, tmp_path: Path, clients: Clients, database: str
) -> None:
    url = request.getfixturevalue(f"{database}_url")
    with site(tmp_path, url, clients) as place:
        machines = {client: place.machine() for client in ("baremetal", "sdk", "introspection", "inspector")}
        nodes = {client: place.enroll(machine) for client, machine in machines.items()}
        address = mac()
        fake = place.enroll_fake(address)
        place.inspect(fake, until="inspect wait")
        command = place.begin_baremetal("node", "inspect", nodes["baremetal"])
        runs = {
            "sdk": place.begin("sdk.inspect", node=nodes["sdk"]),
            "introspection": place.begin("sdk.introspect", node=nodes["introspection"]),
            "inspector": place.begin("inspector.introspect", nodes=[nodes["inspector"]]),
            "ramdisk": place.begin("ramdisk.inspect", api="introspection", macs=[address]),
        }
        saw = {client: value(run.done()) for client, run in runs.items()}
        ended(command.done(), 0)
        assert saw["sdk"]["node"]["provision_state"] == "manageable"
        assert saw["introspection"]["ended"]["state"] == "finished"
        assert saw["inspector"][nodes["inspector"]]["state"] == "finished"
        assert saw["ramdisk"] == fake
        for node in (nodes["baremetal"], fake):
            place.await_state(node, "manageable")
        for client, machine in machines.items():
            assert place.get(f"/v1/nodes/{nodes[client]}/inventory")["inventory"] == machine.sends()["inventory"]
            assert place.count(machine, "pxe_boots") == 1
        place.baremetal("node", "delete", *nodes.values())
        assert place.get("/v1/nodes?driver=sim")["nodes"] == []


def test_a_client_gets_over_a_database_that_is_away_for_a_moment(
    postgresql_server: Server, tmp_path: Path, clients: Clients
) -> None:
    with databases.fresh(postgresql_server) as url, site(tmp_path, url, clients) as place:
        node = place.enroll(place.machine())
        postgresql_server.stop()
        done = place.baremetal("node", "show", node, code=1)
        assert "(HTTP 503)" in done.err
        patient = ["--max-retries", "20", "--retry-interval", "1"]
        run = place.begin_baremetal(*patient, "node", "set", node, "--extra", "patience=1")
        postgresql_server.start()
        ended(run.done(), 0)
        assert place.node(node)["extra"] == {"patience": 1}
        place.inspect(node)
