"""The page of the wiring: switches, their ports, and what contradicts them."""

from __future__ import annotations

import csv
import io
from urllib.parse import urlencode

import pytest

from ferroscope.contrib.ui import wiring
from ferroscope.db.cabling import Wiring
from tests.api.browsing import Browser, Elements, add, expect
from tests.api.service import Service

LLDP = {"interfaces": [{"name": "eth0", "mac_address": "52:54:00:00:00:01", "lldp": []}]}


def wired(service: Service, uuid: str, port: str, switch: str = "Leaf-1", **more: object) -> None:
    """Store what LLDP has told about the node's NIC."""
    told = {f"switch_port_{name}": value for name, value in more.items()}
    found = {"parsed_lldp": {"eth0": {"switch_system_name": switch, "switch_port_id": port} | told}}
    service.learn(uuid, LLDP, found)


def test_the_wiring_names_ports_and_contradictions(service: Service) -> None:
    for name, port in (("one", "Ethernet10"), ("two", "Ethernet2"), ("three", "Ethernet2")):
        wired(service, add(service, name, owner="a" if name == "one" else "b"), port)
    indexed = add(service, "four", owner="b")
    wired(service, indexed, "528", "Leaf-2", description="ge-0/0/11.0", untagged_vlan_id=100, mtu=9216)
    browser = Browser(service).log_in("root")
    page = browser.get("/ui/wiring").text
    assert "<td>100</td><td>9216</td>" in page
    text = Elements(page).text
    assert text.index("ethernet2") < text.index("ethernet10")
    assert "Several machines claim to be at leaf-1 ethernet2" in text
    exported = browser.get("/ui/wiring?format=csv").text.splitlines()
    assert exported[0] == "switch,port,machine,nic,mac,vlan,mtu,contradiction"
    assert exported[-1] == "leaf-2,ge-0/0/11.0,four,eth0,52:54:00:00:00:01,100,9216,"
    assert sum(line.startswith("leaf-1,") for line in exported) == 3
    for query in ("nic.port == 'ge-0/0/11.0'", "nic[vlan == 100 and mtu > 9000]"):
        listed = browser.get("/ui/machines?" + urlencode({"q": query})).text
        assert [name in listed for name in (indexed, "three")] == [True, False], query
    assert "No machine has reported" in browser.get("/ui/wiring?switch=spine").text
    assert "Ethernet10".lower() in browser.get("/ui/machines?c=ports").text
    own = Browser(service).log_in("a-reader").get("/ui/wiring").text
    assert ("one" in own, "ethernet2<" in own, "Several" in own) == (True, False, False)


def test_the_page_has_no_contradiction_whose_machines_have_gone_since_ports_were_counted(service: Service) -> None:
    wired(service, add(service, "one"), "Ethernet1")
    counted = Wiring({"leaf-1": 4}, [("leaf-1", "ethernet1"), ("leaf-1", "ethernet2")])
    service.store.write(lambda tx: tx.counted_ahead.put("wiring", counted))
    text = Elements(Browser(service).log_in("root").get("/ui/wiring").text).text
    assert "leaf-1" in text
    assert "Several machines" not in text


def test_of_many_switches_the_index_shows_some_and_unfolds_the_others(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wiring, "_MAX_INDEXED_OPEN", 2)
    for number in range(4):
        wired(service, add(service, f"m-{number}"), "Ethernet1", switch=f"leaf-{number}")
    page = Browser(service).log_in("root").get("/ui/wiring").text
    before, _, folded = page.partition("2 more switches")
    assert [f'#switch-{number}"' in before for number in range(4)] == [True, True, False, False]
    assert all(f'href="#switch-{number}"' in folded and f'id="switch-{number}"' in folded for number in (2, 3))


def test_the_wiring_names_machines_that_are_not_where_they_are_expected(service: Service) -> None:
    uuids = [add(service, name, owner=owner) for name, owner in (("one", "a"), ("two", "b"), ("three", "b"))]
    for uuid, port in zip(uuids, ("Ethernet1", "Ethernet9"), strict=False):
        wired(service, uuid, port)
    service.learn(uuids[2], LLDP, {})
    browser = Browser(service).log_in("root")
    assert "Contradictions" not in browser.get("/ui/wiring").text
    expect(service, "nic[switch == leaf-1 and port == Ethernet1]", "memory >= 900TB")
    page = Elements(browser.get("/ui/wiring").text)
    assert page.text.count("is not where expected") == 2
    assert "found: nic.switch: leaf-1; nic.port: ethernet9" in page.text.lower()
    assert "900TB" not in page.text
    found = browser.get("/ui/wiring?format=csv").text
    rows = {row["machine"]: row for row in csv.DictReader(io.StringIO(found))}
    assert rows["one"]["contradiction"] == ""
    assert "(rack 1); found nic.switch: leaf-1; nic.port: ethernet9" in rows["two"]["contradiction"]
    assert rows["three"]["switch"] == ""
    assert "expected nic[" in rows["three"]["contradiction"]
    assert "Contradictions" not in browser.get("/ui/wiring?switch=spine").text
    assert "Contradictions" not in Browser(service).log_in("a-reader").get("/ui/wiring").text
