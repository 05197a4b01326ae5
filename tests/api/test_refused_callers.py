"""Machines that belong to no node are seen, whether or not discovery is enabled: API, status, CLI and page."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from ferroscope.config.options import DiscoverySettings
from ferroscope.core.lookup import REPEATED_CALL_SECONDS
from ferroscope.db import Transaction
from ferroscope_client.core.reasons import Reason
from tests.api.commands import Commands
from tests.api.service import Service, callback_body
from tests.support import examples

SOURCE = "192.0.2.66"


def call(service: Service, *macs: str, source: str = SOURCE, **inventory: Any) -> None:
    answer = service.call_back(callback_body(*macs, **inventory), remote_addr=source)
    assert answer.status_code == 404


def callers(service: Service) -> list[dict[str, Any]]:
    answer = service.bare_metal.get("/v1/refused_callers")
    assert answer.status_code == 200
    refused: list[dict[str, Any]] = answer.json["refused_callers"]
    return refused


def age_calls(service: Service, seconds: float) -> None:
    """Let the calls that are kept be older than they are."""

    def work(tx: Transaction) -> None:
        for caller in tx.refused_callers.list():
            tx.refused_callers.put(replace(caller, called_at=caller.called_at - seconds))

    service.store.write(work)


def test_an_unknown_machine_that_called_is_shown_until_a_node_has_it(everywhere: Service) -> None:
    service, macs = everywhere, sorted(examples.mac() for _ in range(2))
    assert callers(service) == []
    call(service, *macs, bmc_address="192.0.2.7", system_vendor={"serial_number": "S-1"})
    (caller,) = callers(service)
    assert (caller["source"], caller["macs"], caller["serial"]) == (SOURCE, macs, "S-1")
    assert (caller["bmc_addresses"], caller["reason"]) == (["192.0.2.7"], Reason.LOOKUP_UNKNOWN)
    problems = service.bare_metal.get("/v1/status").json["problems"]
    shown = f"the MACs {', '.join(macs)} (serial number S-1) called"
    assert [shown in problem["summary"] for problem in problems if problem["code"] == "unknown-callers"] == [True]
    ident = service.enrol()
    service.bare_metal.post("/v1/ports", {"node_ident": ident, "address": macs[1]})
    assert callers(service) == []


def test_a_ramdisk_that_asks_for_its_node_and_a_body_that_cannot_be_read_count_too(service: Service) -> None:
    macs = sorted(examples.mac() for _ in range(2))
    assert service.bare_metal.call("GET", f"/v1/lookup?addresses={macs[0]}", remote_addr=SOURCE).status_code == 404
    unreadable = f'{{"inventory": {{"interfaces": [{{"mac_address": "{macs[1]}"}}]'
    assert service.call_back(unreadable, remote_addr=SOURCE).status_code == 400
    reasons = {caller["macs"][0]: caller["reason"] for caller in callers(service)}
    assert reasons == {macs[0]: Reason.LOOKUP_UNKNOWN, macs[1]: Reason.CALLBACK_INVALID}


def test_a_machine_that_calls_again_at_once_causes_no_further_write(service: Service) -> None:
    mac = examples.mac()
    call(service, mac)
    age_calls(service, REPEATED_CALL_SECONDS / 2)
    kept = callers(service)
    call(service, mac)
    assert callers(service) == kept
    age_calls(service, REPEATED_CALL_SECONDS)
    call(service, mac)
    (caller,) = callers(service)
    assert caller["called_at"] > kept[0]["called_at"]


def test_a_source_in_a_flood_of_failures_causes_no_writes(sqlite_url: str) -> None:
    discovery = DiscoverySettings(enabled=True, driver="fake-hardware", max_waiting=1)
    service = Service(sqlite_url, sections={"auto_discovery": discovery}, failure_burst=3, failure_rate=0.001)
    assert service.call_back(callback_body(examples.mac()), remote_addr="192.0.2.1").status_code == 202
    answers = [service.call_back(callback_body(examples.mac()), remote_addr=SOURCE).status_code for _ in range(6)]
    assert 404 in answers
    assert len(callers(service)) == 3


def test_a_machine_that_an_operator_rejected_is_none_to_enroll(sqlite_url: str) -> None:
    discovery = DiscoverySettings(enabled=True, driver="fake-hardware")
    service, mac = Service(sqlite_url, sections={"auto_discovery": discovery}), examples.mac()
    ident = service.call_back(callback_body(mac), version="1.84").json["node"]["uuid"]
    service.finish(ident)
    assert service.bare_metal.post(f"/v1/nodes/{ident}/reject").status_code == 204
    call(service, mac)
    assert callers(service) == []


def test_explain_and_the_inbox_name_the_machine_that_may_be_the_nodes(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    ferroscope, mac = Commands(service, monkeypatch), examples.mac()
    service.wait(service.enrol(name="n1"))
    assert json.loads(ferroscope("explain", "n1", "-o", "json").stdout)["refused_callers"] == []
    call(service, mac)
    told = json.loads(ferroscope("explain", "n1", "-o", "json").stdout)
    assert told["unknown_callers"] == 1
    assert told["commands"][0] == f"ferroscope node set n1 --add-port {mac}"
    for words in (("explain", "n1"), ("node", "inbox")):
        shown = ferroscope(*words).stdout
        assert mac in shown
        assert SOURCE in shown
    assert "--add-port" in shown
