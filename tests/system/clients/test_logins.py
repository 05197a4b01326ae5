"""Logins without Keystone: the published clients and ours with HTTP basic authentication and with access tokens."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest

from ferroscope_client.errors import Exit
from tests.system.clients import logins
from tests.system.clients.environment import Clients
from tests.system.clients.logins import PASSWORD, Locked


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory, clients: Clients) -> Iterator[Locked]:
    """Give an installation with HTTP basic authentication and access tokens."""
    with logins.basic(tmp_path_factory.mktemp("locked"), clients) as running:
        yield running


@pytest.mark.parametrize("login", ["basic-operator", "token-admin"])
def test_openstacksdk_logs_in_and_inspects_a_machine(locked: Locked, login: str) -> None:
    machine = locked.site.machine()
    node = {"name": machine.name, "driver": "sim", "driver_info": machine.driver_info, "provision_state": "manageable"}
    done = locked.site.call("clouds.enroll_and_inspect", cloud=login, node=node, address=machine.mac)
    assert done["inventory"] == machine.sends()["inventory"]
    assert machine.name in locked.site.call("clouds.names", cloud=login)


@pytest.mark.parametrize("login", ["basic-operator", "token-admin"])
def test_baremetal_logs_in_and_inspects_a_machine(locked: Locked, login: str) -> None:
    machine = locked.site.machine()
    locked.site.enroll(machine)
    done = locked.baremetal(login, "node", "inspect", machine.name, "--wait", "60")
    assert done.code == 0, done.err
    listed = locked.baremetal(login, "node", "list", "-f", "json")
    assert machine.name in listed.out


def test_baremetal_takes_an_access_token_from_its_options(locked: Locked) -> None:
    token = logins.token(locked.site, "reader")
    words = ("--os-auth-type", "admin_token", "--os-token", token, "--os-endpoint", locked.site.bare_metal)
    done = locked.site.clients.command("baremetal", *words, "node", "list", "-f", "json").done()
    assert done.code == 0, done.err


def test_a_wrong_password_is_refused_by_the_service(locked: Locked) -> None:
    assert locked.baremetal("basic-wrong", "node", "list").code
    done = locked.ferroscope("node", "list", "--os-cloud", "basic-wrong")
    assert done.code == Exit.UNAUTHENTICATED
    assert "cloud basic-wrong" in done.err


def test_our_command_line_takes_each_of_the_credentials(locked: Locked, tmp_path: Path) -> None:
    token = logins.token(locked.site, "reader")
    url, password = locked.site.bare_metal, tmp_path / "password"
    password.write_text(f"{PASSWORD}\n")
    config = tmp_path / "ferroscope"
    config.mkdir()
    (config / "credentials").write_text(f"[{url}]\ntoken = {token}\n")
    (config / "credentials").chmod(0o600)
    ways: list[dict[str, str]] = [
        {"OS_CLOUD": "basic-watcher"},
        {"OS_CLOUD": "token-reader"},
        {"FERROSCOPE_TOKEN": token},
        {"FERROSCOPE_TOKEN_FILE": str(config / "token")},
        {"FERROSCOPE_USERNAME": "watcher", "FERROSCOPE_PASSWORD": PASSWORD},
        {"FERROSCOPE_USERNAME": "watcher", "FERROSCOPE_PASSWORD_FILE": str(password)},
        {"XDG_CONFIG_HOME": str(tmp_path)},
    ]
    (config / "token").write_text(f"{token}\n")
    for way in ways:
        listed = locked.ferroscope("node", "list", FERROSCOPE_URL=url, **way)
        assert listed.code == Exit.OK, (way, listed.err)
        refused = locked.ferroscope("node", "create", "x", "--driver", "sim", FERROSCOPE_URL=url, **way)
        assert refused.code == Exit.FORBIDDEN, (way, refused.err)
        for secret in (token, PASSWORD):
            assert secret not in listed.out + listed.err + refused.out + refused.err
    assert locked.ferroscope("node", "list", FERROSCOPE_URL=url).code == Exit.UNAUTHENTICATED


def test_no_secret_is_in_any_log(locked: Locked) -> None:
    token = logins.token(locked.site, "reader")
    locked.ask(X_Auth_Token=token)
    locked.ask(Authorization="Basic " + base64.b64encode(f"watcher:{PASSWORD}".encode()).decode())
    said = locked.site.output()
    assert "/v1/nodes" in said
    for secret in (token, token.split("_", 2)[2], PASSWORD, base64.b64encode(f"watcher:{PASSWORD}".encode()).decode()):
        assert secret not in said
