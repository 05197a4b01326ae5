"""``ferroscope explain NODE``: what is wrong with a node, and commands that can be pasted."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest

from ferroscope.core.delivery import Fail
from ferroscope.core.states import Event
from ferroscope_client.core.reasons import Reason
from ferroscope_client.errors import Exit
from tests.api.commands import Commands
from tests.api.service import Service
from tests.fast.docs.test_commands import known, parse


@pytest.fixture
def ferroscope(service: Service, monkeypatch: pytest.MonkeyPatch) -> Commands:
    return Commands(service, monkeypatch)


def failed(service: Service, reason: Reason, **fields: Any) -> str:
    ident = service.enrol(**fields)
    service.wait(ident)
    service.step(ident, Event.FAIL, Fail(reason, "the cause"))
    return ident


def test_a_failed_node_is_explained_with_commands_that_can_be_pasted(service: Service, ferroscope: Commands) -> None:
    info = {"redfish_address": "https://192.0.2.7", "redfish_password": "secret-1", "allow_shared_bmc": True}
    for number, reason in enumerate(one for one in Reason if one.startswith(("bmc-", "call"))):
        name = f"rack1-u{number}"
        failed(service, reason, name=name, driver_info=info)
        told = json.loads(ferroscope("explain", name, "-o", "json").stdout)
        assert (told["node"], told["state"], told["reason"]) == (name, "inspect failed", reason)
        assert told["error"].startswith("the cause")
        assert told["commands"]
        for command in told["commands"]:
            program, *words = shlex.split(command)
            assert program == "ferroscope"
            assert known(words) is None
            parse([word.replace("@-", "x") for word in words])  # standard input is not there
            assert not {"NODE", "MAC", "FILE", "URL", "PROPERTY=VALUE"} & set(words), command
        shown = ferroscope("explain", name).stdout
        assert all(f"  {command}\n" in shown for command in told["commands"])


def test_what_is_neither_a_node_nor_a_reason_is_said_to_be_so(service: Service, ferroscope: Commands) -> None:
    done = ferroscope("explain", "bmc-credential")
    assert done.exit_code == Exit.NOT_FOUND
    assert "bmc-credentials" in done.stderr
    assert "neither a node nor a reason" in done.stderr


@pytest.mark.parametrize("command", ["create", "set"])
def test_a_field_that_the_driver_does_not_read_is_pointed_out(
    service: Service, ferroscope: Commands, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ferroscope.bmc.fake import FakeBmc

    monkeypatch.setattr(FakeBmc, "properties", {"redfish_address": "", "redfish_password": ""})
    words = ["create", "n1", "--driver", "fake-hardware"]
    if command == "set":
        assert ferroscope("node", *words).exit_code == 0
        words = ["set", "n1"]
    done = ferroscope("node", *words, "-d", "redfish_pasword=x", "-d", "deploy_kernel=file:///k")
    assert done.exit_code == 0
    assert "redfish_pasword (did you mean redfish_password?)" in done.output
    assert "deploy_kernel" not in done.output.partition("note:")[2]
