"""``ferroscope import ironic``, from a real Ironic."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from click.testing import CliRunner, Result
from sqlalchemy import text

from ferroscope.contrib.openstack import client as remote
from ferroscope_client.cli.main import main
from ferroscope_sim.inventory import generate, pxe_mac
from tests.api.service import Service
from tests.support.bare_metal import Ironic

_NUMBERS: Final = itertools.count(800_000)
_PASSWORD: Final = "canary-of-the-bmc"
_TABLES: Final = (
    "nodes",
    "ports",
    "inspections",
    "inspection_data",
    "rules",
    "search_index",
    "journal",
    "bmc_addresses",
    "chassis",
    "portgroups",
)
_NETWORKS: Final = ("physical_network", "category")
_NEWEST: Final = "1.103"  # has both for port groups
# Among the columns of ironic.db's ``node_inventory``, which Ironic's own inspection fills.
_INVENTORY: Final = (
    "INSERT INTO node_inventory (version, inventory_data, plugin_data, node_id, created_at) VALUES (?, ?, ?, ?, ?)"
)
_RULE: Final = {
    "description": "large machines",
    "priority": 7,
    "conditions": [{"op": "eq", "args": ["{node.driver}", "redfish"]}],
    "actions": [{"op": "set-attribute", "args": {"path": "/extra/size", "value": "large"}}],
}


class Site:
    """A service without nodes, and an Ironic."""

    def __init__(self, url: str, ironic: Ironic, directory: Path) -> None:
        self.url, self.ironic, self.directory = url, ironic, directory
        self.service = Service(url)
        self.config = directory / "f.conf"
        self.config.write_text(
            f"[database]\nconnection = {url}\n[drivers]\nenabled = redfish,fake-hardware\n"
            f"[ironic]\nauth_type = none\nendpoint_override = {ironic.url}\n"
        )

    def invoke(self, *options: str) -> Result:
        return CliRunner().invoke(main, ["import", "ironic", "-c", str(self.config), "-o", "json", *options])

    def run(self, *options: str) -> dict[str, Any]:
        done = self.invoke(*options)
        assert done.exit_code == 0, done.output
        report: dict[str, Any] = json.loads(done.stdout)
        return report

    def results(self, report: dict[str, Any]) -> dict[str, str]:
        return {item["uuid"]: item["result"] for item in report["items"]}

    def detail(self, report: dict[str, Any], uuid: str) -> str:
        return next(str(item["detail"]) for item in report["items"] if item["uuid"] == uuid)

    def snapshot(self) -> dict[str, Any]:
        with self.service.backend.engine.connect() as connection:
            return {name: sorted(map(repr, connection.execute(text(f"SELECT * FROM {name}")))) for name in _TABLES}

    def inspected(self, uuid: str, number: int) -> None:
        """Store an inventory as Ironic's own inspection does."""
        sent = msgspec.json.decode(generate(number))
        inventory = sent.pop("inventory")
        with self.ironic.database() as connection:
            (ident,) = connection.execute("SELECT id FROM nodes WHERE uuid = ?", (uuid,)).fetchone()
            row = ("1.0", json.dumps(inventory), json.dumps(sent), ident, "2026-11-01 10:00:00")
            connection.execute(_INVENTORY, row)

    def grouped(self, uuid: str) -> tuple[str, str]:
        """Put the node into a chassis, and its port into a port group; return the UUIDs of both."""
        call = self.ironic.call
        chassis = call("POST", "/v1/chassis", {"description": "enclosure", "extra": {"rack": "7"}})["uuid"]
        call("PATCH", f"/v1/nodes/{uuid}", [{"op": "add", "path": "/chassis_uuid", "value": chassis}])
        group = {"node_uuid": uuid, "name": "bond0", "address": "52:54:00:0b:0d:00", "mode": "802.3ad"}
        group |= {"properties": {"miimon": "100"}, "extra": {"a": "b"}, "physical_network": "net-a", "category": "blue"}
        bond = call("POST", "/v1/portgroups", group, version=_NEWEST)["uuid"]
        (port,) = self.ironic.ports(uuid)
        wanted = {"portgroup_uuid": bond, "physical_network": "net-a", "category": "green"}
        patch = [{"op": "add", "path": f"/{name}", "value": value} for name, value in wanted.items()]
        call("PATCH", f"/v1/ports/{port['uuid']}", patch, version=_NEWEST)
        return str(chassis), str(bond)

    def enroll(self, **fields: Any) -> tuple[str, int]:
        number = next(_NUMBERS)
        return self.ironic.enroll(f"import-{number}", pxe_mac(number), **fields), number


@pytest.fixture
def site(sqlite_url: str, ironic: Ironic, tmp_path: Path) -> Iterator[Site]:
    made = Site(sqlite_url, ironic, tmp_path)
    yield made
    made.service.close()
    for node in ironic.call("GET", "/v1/nodes")["nodes"]:
        if str(node["name"]).startswith("import-"):
            ironic.call("PUT", f"/v1/nodes/{node['uuid']}/maintenance", {})
            ironic.call("DELETE", f"/v1/nodes/{node['uuid']}")
    for chassis in ironic.call("GET", "/v1/chassis")["chassis"]:
        ironic.call("DELETE", f"/v1/chassis/{chassis['uuid']}")
    for rule in ironic.call("GET", "/v1/inspection_rules")["inspection_rules"]:
        ironic.call("DELETE", f"/v1/inspection_rules/{rule['uuid']}")


def test_everything_is_imported_once_and_can_be_rolled_back(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "_DOCUMENTS_PER_PAGE", 2)  # so that ``next`` is followed
    info = {"redfish_address": "https://192.0.2.7", "redfish_username": "root", "redfish_password": _PASSWORD}
    given = {"driver_info": info, "resource_class": "large", "description": "words"}
    uuid, number = site.enroll(properties={"memory_mb": 4096}, extra={"rack": "7"}, **given)
    site.ironic.call("PUT", f"/v1/nodes/{uuid}/traits", {"traits": ["CUSTOM_A", "CUSTOM_B"]})
    site.inspected(uuid, number)
    chassis, bond = site.grouped(uuid)
    others = [site.enroll()[0] for _ in range(4)]
    rule = site.ironic.call("POST", "/v1/inspection_rules", _RULE)["uuid"]
    sensitive = site.ironic.call("POST", "/v1/inspection_rules", _RULE | {"sensitive": True})["uuid"]
    before = site.snapshot()
    planned = site.run("--dry-run")
    assert site.snapshot() == before
    report = site.run()
    assert (report["counts"], report["items"]) == (planned["counts"], planned["items"])
    results = site.results(report)
    assert {results[one] for one in (uuid, *others, rule, chassis)} == {"imported"}
    assert report["counts"]["chassis imported"] == 1
    assert results[sensitive] == "skipped"
    assert "redfish_password" in site.detail(report, uuid)
    assert _is_all_there(site, uuid, number)
    assert site.service.bare_metal.get(f"/v1/portgroups/{bond}/ports").json["ports"][0]["address"] == pxe_mac(number)
    after = site.snapshot()
    assert set(site.results(site.run()).values()) == {"already imported", "skipped"}
    assert site.snapshot() == after
    site.service.bare_metal.patch(f"/v1/nodes/{others[0]}", {"op": "add", "path": "/extra/a", "value": "b"})
    undone = site.results(site.run("--rollback"))
    expected = dict.fromkeys((uuid, rule, chassis, *others[1:]), "rolled back") | {others[0]: "changed since"}
    assert {one: undone[one] for one in expected} == expected
    site.service.bare_metal.delete(f"/v1/nodes/{others[0]}")
    end = site.snapshot()
    for table in sorted({*_TABLES} - {"journal"}):
        assert end[table] == before[table], table


def _is_all_there(site: Site, uuid: str, number: int) -> bool:
    client = site.service.bare_metal
    there, here = site.ironic.node(uuid), client.get(f"/v1/nodes/{uuid}").json
    for name in (
        "name",
        "driver",
        "provision_state",
        "properties",
        "extra",
        "resource_class",
        "description",
        "chassis_uuid",
    ):
        assert here[name] == there[name], name
    for kind, names in (
        ("chassis", ("uuid", "description", "extra")),
        ("portgroups", ("uuid", "name", "address", "mode", "properties", "extra", "node_uuid", *_NETWORKS)),
    ):
        (there,) = site.ironic.call("GET", f"/v1/{kind}/detail", version=_NEWEST)[kind]
        (found,) = client.get(f"/v1/{kind}/detail").json[kind]
        assert {name: found[name] for name in names} == {name: there[name] for name in names}
    assert here["traits"] == ["CUSTOM_A", "CUSTOM_B"]
    assert here["driver_info"] == {"redfish_address": "https://192.0.2.7", "redfish_username": "root"}
    (port,) = client.get(f"/v1/nodes/{uuid}/ports").json["ports"]
    assert (port["uuid"], port["address"]) == (site.ironic.ports(uuid)[0]["uuid"], pxe_mac(number))
    port = client.get(f"/v1/ports/{port['uuid']}").json
    assert [port[name] for name in _NETWORKS] == ["net-a", "green"]
    found = client.get(f"/v1/nodes/{uuid}/inventory").json
    assert found == site.ironic.call("GET", f"/v1/nodes/{uuid}/inventory")
    assert site.service.store.read(lambda tx: tx.search_index.of(uuid))
    (rule,) = client.get("/v1/inspection_rules?detail=true").json["inspection_rules"]
    assert {name: rule[name] for name in ("description", "priority", "actions")} == {
        name: _RULE[name] for name in ("description", "priority", "actions")
    }
    return True


def test_passwords_and_drivers_are_given_by_the_operator(site: Site) -> None:
    info = {"ipmi_address": "192.0.2.8", "ipmi_password": _PASSWORD}
    uuid, number = site.enroll(driver_info=info)
    (site.directory / "secrets.csv").write_text(f"import-{number},ipmi_password,canary-given\n{uuid},ipmi_port,623\n")
    report = site.run("--driver-info-file", str(site.directory / "secrets.csv"), "--driver", "fake-hardware=redfish")
    assert site.results(report)[uuid] == "imported"
    assert "ipmi_password" not in site.detail(report, uuid)
    node = site.service.node(uuid)
    assert (node.driver, node.driver_info["ipmi_password"], node.driver_info["ipmi_port"]) == (
        "redfish", "canary-given", "623",
    )  # fmt: skip
    (site.directory / "wrong.csv").write_text("a,b,c\nonly canary-given\n")
    refused = site.invoke("--driver-info-file", str(site.directory / "wrong.csv"))
    assert (refused.exit_code, "line 2" in refused.output, "canary" in refused.output) == (1, True, False)


def test_what_cannot_be_imported_is_reported_and_the_rest_is_imported(site: Site) -> None:
    unknown, active, same_mac, exists = own = [site.enroll()[0] for _ in range(4)]  # other tests' nodes are there, too
    site.ironic.provision(active, "adopt", "active")
    mac = site.ironic.ports(same_mac)[0]["address"]
    other = site.service.enrol(name="other")
    site.service.bare_metal.post("/v1/ports", {"node_uuid": other, "address": mac})
    site.service.bare_metal.post("/v1/nodes", {"uuid": exists, "driver": "fake-hardware"})
    site.config.write_text(site.config.read_text().replace("redfish,fake-hardware", "redfish"))
    report = site.run()
    assert {site.results(report)[uuid] for uuid in own} == {"skipped"}
    assert "--driver" in site.detail(report, unknown)
    report = site.run("--driver", "fake-hardware=redfish")
    results = site.results(report)
    assert (results[unknown], results[same_mac], results[exists]) == ("imported", "imported", "skipped")
    assert mac in site.detail(report, same_mac)
    assert "active" in site.detail(report, active)
    assert site.service.node(active).provision_state == "available"


@pytest.mark.parametrize(
    ("options", "expected", "code"),
    [
        (["--endpoint", "http://127.0.0.1:9"], "127.0.0.1:9", 5),
        (["--endpoint", "nonsense"], "endpoint_override", 1),
        (["--from-cloud", "nowhere"], "nowhere", 1),
        (["--driver", "redfish"], "THERE=HERE", 2),
    ],
)
def test_a_source_that_cannot_be_used_is_an_error(site: Site, options: list[str], expected: str, code: int) -> None:
    done = site.invoke(*options)
    assert (done.exit_code, expected in done.output) == (code, True), done.output
