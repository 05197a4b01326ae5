"""Rules in an inspection: after the hooks, on the same copies, committed together or not at all."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ferroscope.config.options import Settings
from ferroscope.contracts.bmc import Power
from ferroscope.core.model import Node, Rule, RuleDialect
from ferroscope.worker.attempt import Attempt
from ferroscope_client.core.states import State
from tests.fast.worker.conftest import INVENTORY, Service, settings
from tests.support import examples


@pytest.fixture
def service() -> Service:
    return Service(settings())


def add(service: Service, *actions: Any, **fields: Any) -> Rule:
    rule = examples.rule(actions=list(actions), **fields)
    service.store.write(lambda tx: tx.rules.add(rule))
    return rule


def inspect(service: Service) -> None:
    service.boot()
    service.finish(serial="x")


def act(op: str, **args: Any) -> dict[str, Any]:
    return {"op": op, "args": args}


def test_what_a_rule_did_is_stored_with_the_inspection(service: Service) -> None:
    add(
        service,
        act("set-attribute", path="extra/arch", value="{node.properties[cpu_arch]}"),
        act("set-plugin-data", path="by.rule", value="{plugin_data[serial]}"),
        act("set-port-attribute", port_id="02:00:00:00:00:01", path="extra/first", value=True),
    )
    inspect(service)
    node = service.node
    assert (node.state, node.extra) == (State.FINISHED, {"arch": "x86_64"})
    data = service.store.read(lambda tx: tx.data.load(node.inspection or "", ("plugin_data",)))
    assert msgspec.json.decode(data["plugin_data"])["by"] == {"rule": "x"}
    (mac,) = service.ports
    port = service.store.read(lambda tx: tx.ports.get(mac))
    assert port.extra == {"first": True}


def test_the_timeline_names_the_rules_that_applied(service: Service) -> None:
    rule = add(service, act("log", msg="seen {node.name}", level="warning"), description="says hello")
    add(service, act("log", msg="never"), conditions=[{"op": "eq", "args": [1, 2]}])
    inspect(service)
    entries = [entry for entry in service.journal if entry.step == "rules"]
    assert [entry.message for entry in entries] == [
        "seen one",
        f"1 of 2 rules applied: {rule.uuid} (says hello)",
    ]
    assert entries[0].severity == "WARNING"
    assert entries[1].detail == {"applied": [rule.uuid]}


def test_a_rule_cannot_set_an_address_that_may_be_another_machine(service: Service) -> None:
    add(service, act("set-attribute", path="driver_info/ipmi_address", value="10.40.0.041"))
    inspect(service)
    assert (service.node.state, service.inspection.reason) == (State.ERROR, "rule-failed")
    assert "10.40.0.33" in (service.node.last_error or "")
    assert "ipmi_address" not in service.node.driver_info


@pytest.mark.parametrize("value", ["192.0.2.7", "{inventory[bmc_address]}"])
def test_a_rule_cannot_bring_a_node_to_the_bmc_of_another(service: Service, value: str) -> None:
    uuid = "00000000-0000-4000-8000-000000000007"
    other = Node(uuid=uuid, name="base", driver="ipmi", driver_info={"ipmi_address": "192.0.2.7"})
    service.store.write(lambda tx: tx.nodes.add(other))
    service.store.write(lambda tx: tx.addresses.set_bmc(other.uuid, ["192.0.2.7"]))
    add(service, act("set-attribute", path="driver_info/ipmi_address", value=value))
    service.boot()
    service.finish(INVENTORY | {"bmc_address": "192.0.2.7"})
    assert (service.node.state, service.inspection.reason) == (State.ERROR, "rule-failed")
    assert "the BMC 192.0.2.7 is that of node base" in (service.node.last_error or "")
    assert "ipmi_address" not in service.node.driver_info


def test_where_a_rule_puts_a_bmc_is_known_to_the_checks_of_others(service: Service) -> None:
    add(service, act("set-attribute", path="driver_info/ipmi_address", value="192.0.2.7"))
    inspect(service)
    assert service.node.state is State.FINISHED
    at_place = service.store.read(lambda tx: tx.addresses.owners(["192.0.2.7"]))
    assert [node.uuid for node in at_place] == [service.node.uuid]


def test_a_rule_on_a_field_that_no_data_has_is_noted_with_rule_and_field(service: Service) -> None:
    new = add(service, act("log", msg="never"), conditions=[act("ge", values=["{plugin_data[memory_mbb]}", 1])])
    old = add(
        service,
        act("set-attribute", path="/extra/never", value=1),
        conditions=[act("ge", field="memory_mbb", value=1)],
        dialect=RuleDialect.INTROSPECTION,
    )
    fires = add(
        service,
        act("set-attribute", path="/extra/size", value="large"),
        conditions=[act("ge", field="memory_mb", value=4096), act("eq", field="cpus", value=8)],
        dialect=RuleDialect.INTROSPECTION,
    )
    inspect(service)
    assert service.node.extra == {"size": "large"}
    missing, applied = (entry for entry in service.journal if entry.step == "rules")
    assert applied.detail == {"applied": [fires.uuid]}
    assert {(one["rule"], one["field"]) for one in missing.detail["missing"]} == {
        (new.uuid, "plugin_data[memory_mbb]"),
        (old.uuid, "data://memory_mbb"),
    }
    assert all(text in missing.message for text in (new.uuid, old.uuid, "plugin_data[memory_mbb]"))


def test_a_rule_that_fails_leaves_nothing_behind_but_its_reason(service: Service) -> None:
    rule = add(
        service,
        act("set-attribute", path="extra/half", value=1),
        act("set-attribute", path="extra/other", value="{inventory[nothing]}"),
    )
    inspect(service)
    node = service.node
    assert (node.state, node.extra, node.properties) == (State.ERROR, {}, {})
    assert service.inspection.reason == "rule-failed"
    assert rule.uuid in (node.last_error or "")
    assert "inventory[nothing] does not exist" in (node.last_error or "")
    assert service.ports == []
    assert node.power_state == Power.OFF
    assert service.store.read(lambda tx: tx.data.load(node.inspection or "", ("plugin_data",))) == {}
    failed = [entry for entry in service.journal if entry.step == "failed"]
    assert rule.uuid in failed[-1].message


def test_a_rule_may_refuse_a_machine_and_a_reapply_without_it_goes_well(service: Service) -> None:
    rule = add(service, act("fail", msg="not in rack {plugin_data[serial]}"))
    inspect(service)
    assert service.inspection.reason == "refused-by-rule"
    assert "not in rack x" in (service.node.last_error or "")
    service.store.write(lambda tx: tx.rules.remove(rule.uuid))
    service.reapply()
    service.work()
    assert service.node.state is State.FINISHED


def test_a_sensitive_rule_shows_nothing_of_itself(service: Service) -> None:
    rule = add(
        service,
        act("log", msg="s3cr3t"),
        act("fail", msg="s3cr3t"),
        sensitive=True,
        description="s3cr3t",
    )
    inspect(service)
    told = " ".join(entry.message for entry in service.journal) + (service.node.last_error or "")
    assert rule.uuid in told
    assert "s3cr3t" not in told


def test_a_change_of_the_rules_is_seen_by_the_next_inspection(service: Service) -> None:
    inspect(service)
    assert service.node.extra == {}
    rule = add(service, act("set-attribute", path="extra/n", value=1))
    service.reapply()
    service.work()
    assert service.node.extra == {"n": 1}
    changed = msgspec.structs.replace(rule, actions=[act("set-attribute", path="extra/n", value=2)])
    service.store.write(lambda tx: tx.rules.update(changed))
    service.reapply()
    service.work()
    assert service.node.extra == {"n": 2}


def test_a_name_that_another_node_has_fails_at_once_and_says_whose_it_is(service: Service) -> None:
    other = examples.node(name="taken")
    service.store.write(lambda tx: tx.nodes.add(other))
    rule = add(service, act("set-attribute", path="name", value="taken"), description="names machines")
    inspect(service)
    node = service.node
    assert (node.state, node.name, node.power_state) == (State.ERROR, "one", Power.OFF)
    assert service.inspection.reason == "name-taken"
    assert all(part in (node.last_error or "") for part in (rule.uuid, "names machines", "'taken'", other.uuid))
    assert "retry" not in [entry.step for entry in service.journal]


def test_a_name_that_is_taken_between_the_rules_and_the_commit_fails_with_the_next_attempt(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = examples.node(name="taken")
    add(service, act("set-attribute", path="name", value="taken"))
    look = Attempt.find_node_by_name
    looks = []

    def find_node_by_name(run: Attempt, name: str) -> str | None:
        looks.append(name)
        found = look(run, name)
        if len(looks) == 1:
            service.store.write(lambda tx: tx.nodes.add(other))
        return found

    monkeypatch.setattr(Attempt, "find_node_by_name", find_node_by_name)
    inspect(service)
    retries = [(entry.reason, entry.message) for entry in service.journal if entry.step == "retry"]
    assert retries == [("name-taken", 'name "taken" is already in use')]
    assert (looks, service.inspection.reason) == (["taken", "taken"], "name-taken")
    assert other.uuid in (service.node.last_error or "")


def test_only_the_name_that_is_left_in_the_end_must_be_free(service: Service) -> None:
    service.store.write(lambda tx: tx.nodes.add(examples.node(name="taken")))
    add(service, act("set-attribute", path="name", value="taken"), priority=2)
    add(service, act("set-attribute", path="name", value="free"), priority=1)
    inspect(service)
    assert (service.node.state, service.node.name) == (State.FINISHED, "free")


def test_a_discovered_node_is_approved_by_a_rule(service: Service) -> None:
    service.boot()
    waiting = msgspec.structs.replace(service.node, inbox=True)
    service.store.write(lambda tx: tx.nodes.update(waiting))
    add(service, act("approve"), conditions=[{"op": "is-true", "args": {"value": "{node.inbox}"}}])
    service.finish()
    assert service.node.inbox is False
    assert "approved by a rule" in [entry.message for entry in service.journal]


def test_nobody_is_called_unless_the_configuration_allows_it(service: Service) -> None:
    assert Settings().inspection_rules.api_call_targets == ()
    add(service, act("api-call", url="http://127.0.0.1:9/x?token=s3cr3t"))
    inspect(service)
    assert service.inspection.reason == "rule-failed"
    assert "http://127.0.0.1:9/x" in (service.node.last_error or "")
    assert "s3cr3t" not in (service.node.last_error or "")


STORED = {"redfish_address": "https://192.0.2.1", "redfish_password": "hush"}


def with_info(service: Service, **info: Any) -> None:
    node = service.node
    service.store.write(lambda tx: tx.nodes.update(msgspec.structs.replace(node, driver_info=info)))


def test_a_rule_cannot_send_a_stored_secret_to_where_a_machine_says_that_its_bmc_is(service: Service) -> None:
    with_info(service, **STORED)
    address = "https://{inventory[bmc_address]}"
    add(service, act("set-attribute", path="driver_info/redfish_address", value=address))
    service.boot()
    service.finish(INVENTORY | {"bmc_address": "198.51.100.66"})
    assert service.node.state is State.ERROR
    assert service.inspection.reason == "rule-failed"
    assert service.node.driver_info == STORED
    assert "hush" not in str(service.node.last_error)


def test_a_secret_that_a_rule_brings_stays_here_until_an_operator_agrees_with_its_place(service: Service) -> None:
    address = "https://{inventory[bmc_address]}"
    add(
        service,
        act("set-attribute", path="driver_info/redfish_address", value=address),
        act("set-attribute", path="driver_info/redfish_password", value="hush"),
    )
    service.boot()
    service.finish(INVENTORY | {"bmc_address": "198.51.100.66"})
    assert service.node.driver_info["redfish_password"] == "hush"
    asked = len(service.machine.commands)
    service.boot()
    assert (service.node.state, service.inspection.reason) == (State.ERROR, "bmc-unconfirmed")
    assert len(service.machine.commands) == asked


def test_within_the_networks_of_bmcs_nobody_needs_to_agree() -> None:
    base = settings()
    drivers = msgspec.structs.replace(base.drivers, bmc_networks=("198.51.100.0/24",))
    service = Service(msgspec.structs.replace(base, drivers=drivers))
    add(
        service,
        act("set-attribute", path="driver_info/redfish_address", value="https://{inventory[bmc_address]}"),
        act("set-attribute", path="driver_info/redfish_password", value="hush"),
    )
    for _ in range(2):
        service.boot()
        service.finish(INVENTORY | {"bmc_address": "198.51.100.66"})
    assert service.node.state is State.FINISHED
