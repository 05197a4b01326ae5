"""``ferroscope node manage | provide | abort | power``, beside a real service with a real worker."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from ferroscope_client.errors import Exit
from tests.api.service import Service
from tests.support import examples
from tests.system.cli.conftest import Switch
from tests.system.cli.console import Shell


@pytest.fixture
def node(running: Shell) -> Iterator[str]:
    """Give the name of a new node."""
    name = f"verbs-{examples.uuid()[:8]}"
    running("node", "create", "--driver", "fake-hardware", name, "--port", examples.mac(), check=0)
    yield name
    if running.json("node", "show", name)["provision_state"] in ("inspecting", "inspect wait"):
        running("node", "abort", name, "--wait", check=0)
    running("node", "delete", name, check=0)


def state(running: Shell, node: str) -> str:
    return str(running.json("node", "show", node)["provision_state"])


def test_a_node_is_managed_and_provided(running: Shell, node: str) -> None:
    assert running.json("node", "manage", node, "--wait")[0]["result"] == "manageable"
    assert state(running, node) == "manageable"
    running("node", "provide", node, check=0)
    assert state(running, node) == "available"


def test_what_is_missing_before_a_new_node_can_be_managed_is_said(running: Shell) -> None:
    lines = running.lines("node", "create", "incomplete", "--driver", "sim")
    assert "sim_node" in lines[-2]
    assert "ferroscope node set incomplete" in lines[-1]
    assert "ferroscope driver properties sim" in lines[-1]
    running("node", "delete", "incomplete", check=0)


def test_a_verb_that_the_state_does_not_take_is_a_conflict_that_says_what_it_takes(running: Shell, node: str) -> None:
    result = running.json("node", "provide", node, check=Exit.CONFLICT)[0]
    assert result["result"] == "failed"
    assert "allowed now: inspect, manage" in result["error"]


def test_power_is_commanded_and_shown(running: Shell, node: str) -> None:
    unknown = "the BMC responds: it does not report whether the machine is on or off"
    assert running.json("bmc", "try", node)[0]["result"] == unknown
    running("node", "power", node, "on", "--wait", check=0)
    assert running.json("bmc", "try", node)[0]["result"] == "the BMC responds: power on"
    assert running.lines("node", "power", node) == ["power on"]
    running("node", "power", node, "reboot", "--wait", check=0)
    running("node", "power", node, "off", "--wait", check=0)
    assert running.json("node", "power", node)["power_state"] == "power off"


def test_all_nodes_are_asked_before_any_is_waited_for(service: Service, listener: tuple[Switch, str]) -> None:
    shell, calls, app = Shell(listener[1]), [], service.app
    names = ["n1", "n2", "n3"]
    for name in names:
        shell("node", "create", name, "--driver", "fake-hardware", check=0)

    def noted(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        calls.append(environ["REQUEST_METHOD"])
        return app(environ, start_response)

    listener[0].app = noted
    shell("node", "manage", *names, "--wait", "--timeout", "0.1", check=Exit.TIMED_OUT)  # there is no worker
    assert calls.count("PUT") == 3
    after = calls[calls.index("PUT") :]
    assert after[:3] == ["PUT"] * 3
