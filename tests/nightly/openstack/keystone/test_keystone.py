"""A real Keystone before the API: its published clients and ours log in; wrong, expired and revoked tokens; outages."""

from __future__ import annotations

import re
import shlex
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import urllib3

from bench.service import executable
from ferroscope.api.errors import UnauthorizedError
from ferroscope.config.options import KeystoneSettings
from ferroscope.contrib.openstack.keystone import KeystoneAuth
from ferroscope.runtime.system import SystemClock
from ferroscope_client.errors import Exit
from tests.support import databases
from tests.support.installation import Played
from tests.support.keystone import keystone
from tests.support.processes import PATIENCE, free_port, until
from tests.system.clients import logins
from tests.system.clients.environment import ClientError, Clients
from tests.system.clients.logins import Cloud
from tests.system.examples.test_secure_the_service import commands, section


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory, clients: Clients) -> Iterator[Cloud]:
    """Give one Keystone, and an installation that takes its tokens."""
    with logins.cloud(tmp_path_factory.mktemp("cloud"), clients) as running:
        yield running


def test_openstacksdk_logs_in_and_inspects_a_machine(cloud: Cloud) -> None:
    machine = cloud.site.machine()
    node = {"name": machine.name, "driver": "sim", "driver_info": machine.driver_info, "provision_state": "manageable"}
    done = cloud.site.call("clouds.enroll_and_inspect", cloud="operator", node=node, address=machine.mac)
    assert done["provision_state"] == "manageable"
    assert done["inventory"] == machine.sends()["inventory"]
    assert machine.name in cloud.site.call("clouds.names", cloud="watcher")
    cloud.site.call("clouds.delete", cloud="operator", node=machine.name)
    assert machine.name not in cloud.site.call("clouds.names", cloud="operator")


def test_baremetal_logs_in_and_inspects_a_machine(cloud: Cloud) -> None:
    machine = cloud.site.machine()
    info = [word for key, value in machine.driver_info.items() for word in ("--driver-info", f"{key}={value}")]
    made = cloud.baremetal("operator", "node", "create", "--driver", "sim", "--name", machine.name, *info, "-f", "json")
    assert made.code == 0, made.err
    for words in (
        ("port", "create", machine.mac, "--node", made.json()["uuid"]),
        ("node", "manage", machine.name, "--wait", "60"),
        ("node", "inspect", machine.name, "--wait", "60"),
    ):
        done = cloud.baremetal("operator", *words)
        assert done.code == 0, done.err
    shown = cloud.baremetal("watcher", "node", "show", machine.name, "-f", "json").json()
    assert (shown["provision_state"], shown["last_error"]) == ("manageable", None)


def test_our_command_line_finds_the_endpoint_in_the_catalog_and_inspects_a_machine(cloud: Cloud) -> None:
    machine = cloud.site.machine()
    cloud.site.enroll(machine)
    done = cloud.ferroscope("--os-cloud", "operator", "inspect", machine.name, "--wait")
    assert done.code == Exit.OK, done.err
    listed = cloud.ferroscope("node", "list", "-o", "csv", OS_CLOUD="watcher")
    assert machine.name in listed.out
    token = cloud.token("watcher")
    listed = cloud.ferroscope("node", "list", "-o", "csv", FERROSCOPE_TOKEN=token, FERROSCOPE_URL=cloud.site.bare_metal)
    assert machine.name in listed.out


def test_a_role_that_does_not_suffice_is_403_to_every_client(cloud: Cloud) -> None:
    for other in ("viewer", "guest"):
        assert cloud.ask(method="POST", body={"driver": "sim"}, X_Auth_Token=cloud.token(other)) == 403
    person, name = "watcher", "not-by-watcher"
    done = cloud.baremetal(person, "node", "create", "--driver", "sim", "--name", name)
    assert done.code
    assert "403" in done.err
    with pytest.raises(ClientError) as refused:
        cloud.site.call(
            "clouds.enroll_and_inspect", cloud=person, node={"name": name, "driver": "sim"}, address="52:54:00:00:00:99"
        )
    assert refused.value.kind == "ForbiddenException"
    ours = cloud.ferroscope("node", "create", name, "--driver", "sim", OS_CLOUD=person)
    assert ours.code == Exit.FORBIDDEN
    assert f"cloud {person}" in ours.err
    assert not cloud.site.exists(f"/v1/nodes/{name}")


def test_a_wrong_password_is_keystones_refusal_and_is_not_shown(cloud: Cloud) -> None:
    done = cloud.ferroscope("node", "list", OS_CLOUD="wrong")
    assert done.code == Exit.UNAUTHENTICATED
    assert "cloud wrong" in done.err
    assert logins.PASSWORD not in done.out + done.err


def test_without_a_token_or_with_a_wrong_one_it_is_401_and_open_paths_stay_open(cloud: Cloud) -> None:
    status, headers = cloud.answer()
    assert status == 401
    assert cloud.keystone.identity.url in headers["WWW-Authenticate"]
    for wrong in ("no-token", "gAAAAA" + "x" * 200, "fst_0123456789ab_" + "x" * 43):
        assert cloud.ask(X_Auth_Token=wrong) == 401
    assert cloud.ask("/") == cloud.ask("/v1/") == 200
    done = cloud.ferroscope("node", "list", FERROSCOPE_URL=cloud.site.bare_metal)
    assert done.code == Exit.UNAUTHENTICATED


def test_an_expired_token_is_401(cloud: Cloud) -> None:
    token = cloud.token_for("tenant", 5.0)
    assert until(lambda: cloud.ask(X_Auth_Token=token) == 401)


@pytest.mark.filterwarnings("ignore:'cgi' is deprecated:DeprecationWarning")  # webob, which the middleware imports
def test_a_service_token_makes_an_expired_token_of_a_user_acceptable(tmp_path: Path) -> None:
    with keystone(tmp_path, lifetime=40) as running:
        logins.furnish(running.identity)
        settings = KeystoneSettings(auth_url=running.identity.url, username="ferroscope", password=logins.PASSWORD)
        auth = KeystoneAuth(settings, SystemClock())

        def token(person: str) -> str:
            return running.identity.token(person, logins.PASSWORD, logins.PEOPLE[person][0])

        def who(user: str, service: str = "") -> str:
            try:
                found = auth.identify({"x-auth-token": user} | ({"x-service-token": service} if service else {}))
            except UnauthorizedError:
                return "nobody"
            return "" if found is None else found.user

        expired = token("tenant")
        assert who(expired) == "tenant"
        assert until(lambda: who(expired) == "nobody")
        assert who(expired, token("ferroscope")) == "tenant"
        assert who(expired) == "nobody"
        # Only a role of [keystone_authtoken] service_token_roles makes a service, and no service is a user.
        assert who(expired, token("watcher")) == "nobody"
        assert who(expired, "gAAAAA" + "z" * 200) == "nobody"
        assert who(token("watcher"), token("ferroscope")) == "watcher"
        assert who(token("watcher"), "wrong") == "nobody"
        assert who("", token("ferroscope")) == ""


def test_a_revoked_token_is_401_as_soon_as_it_is_asked_for_again(cloud: Cloud) -> None:
    token = cloud.token("watcher")
    assert cloud.ask(X_Auth_Token=token) == 200
    cloud.keystone.identity.delete_token(token)
    assert until(lambda: cloud.ask(X_Auth_Token=token) == 401)


class Visitor:
    """A browser without scripts at the login of the web page."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.session = requests.Session()

    def log_in(self, **fields: str) -> requests.Response:
        form = self.session.get(f"{self._url}/ui/login", timeout=60)
        found = re.search(r'name="csrf" value="([0-9a-f]+)"', form.text)
        assert found is not None
        return self.session.post(f"{self._url}/ui/login", data={"csrf": found[1]} | fields, timeout=60)


def test_a_user_logs_in_to_the_web_page_with_a_password(cloud: Cloud) -> None:
    operator = Visitor(cloud.site.bare_metal)
    given = {"user": "operator", "password": logins.PASSWORD, "system": "yes"}
    elsewhere = {"project": "no-such-project", "system": ""}
    for wrong in ({"password": "wrong-pa55"}, {"user": "nobody"}, {"domain": "elsewhere"}, elsewhere):
        refused = operator.log_in(**given | wrong)
        assert (refused.status_code, 'role="alert"' in refused.text) == (401, True), wrong
        assert logins.PASSWORD not in refused.text
    page = operator.log_in(**given)
    assert (page.status_code, page.url) == (200, f"{cloud.site.bare_metal}/ui")
    assert "operator" in page.text
    assert 'href="/ui/enroll"' in page.text
    tenant = Visitor(cloud.site.bare_metal)
    page = tenant.log_in(user="tenant", password=logins.PASSWORD, project=logins.PROJECT)
    assert (page.status_code, 'href="/ui/enroll"' in page.text) == (200, False)


def test_a_killed_keystone_is_503_for_its_tokens_only_and_all_goes_on_when_it_is_back(cloud: Cloud) -> None:
    keystones, ours = cloud.token("watcher"), logins.token(cloud.site, "reader")
    assert cloud.ask(X_Auth_Token=keystones) == 200
    cloud.keystone.kill()
    try:
        assert until(lambda: cloud.ask(X_Auth_Token=keystones) == 503)
        status, headers = cloud.answer(X_Auth_Token="gAAAAA" + "y" * 200)
        assert status == 503
        assert int(headers["Retry-After"]) > 0
        assert cloud.ask(X_Auth_Token=ours) == 200
        assert cloud.ask("/") == 200
        before = cloud.site.output().count("Unable to validate token")
        for number in range(5):
            assert until(lambda: cloud.ask(X_Auth_Token=f"gAAAAA{number}{'y' * 99}") == 503)  # noqa: B023
            time.sleep(1.1)  # longer than nobody asks Keystone after it did not answer
        assert before <= cloud.site.output().count("Unable to validate token") <= before + 1
        done = cloud.ferroscope("node", "list", OS_CLOUD="watcher")
        assert done.code == Exit.UNREACHABLE, done.err
    finally:
        cloud.keystone.start()
        cloud.keystone.wait_answers()
    assert until(lambda: cloud.ask(X_Auth_Token=keystones) == 200)


def test_a_frozen_keystone_holds_up_nobody_else(cloud: Cloud) -> None:
    keystones, ours = cloud.token("watcher"), logins.token(cloud.site, "reader")
    assert cloud.ask(X_Auth_Token=ours) == 200
    statuses: list[int] = []
    cloud.keystone.freeze()
    # More than the api has threads for.
    waiting = [
        threading.Thread(target=lambda number=number: statuses.append(cloud.ask(X_Auth_Token=f"gAAAAA{number}")))  # type: ignore[misc]
        for number in range(12)
    ]
    try:
        for thread in waiting:
            thread.start()
        for _ in range(20):
            assert cloud.ask(X_Auth_Token=ours) == 200
            assert cloud.ask("/") == 200
        for thread in waiting:
            thread.join(PATIENCE)
        assert set(statuses) == {503}
    finally:
        cloud.keystone.thaw()
    assert until(lambda: cloud.ask(X_Auth_Token=keystones) == 200)


def test_the_commands_of_the_page_on_securing_the_service_work(tmp_path: Path, clients: Clients) -> None:
    source, port = section("With Keystone"), free_port()
    with keystone(tmp_path) as running:
        identity, url = running.identity, running.identity.url
        admin = identity.token("admin", "ADMIN", "admin")
        projects = {
            name: identity.make("project", admin, name=name, domain_id="default") for name in ("service", "research")
        }
        for person in ("alice", "bob"):
            identity.make("user", admin, name=person, password=logins.PASSWORD, domain_id="default")
        login = [f"--os-auth-url={url}", "--os-username=admin", "--os-password=ADMIN", "--os-project-name=admin"]
        login += ["--os-user-domain-name=Default", "--os-project-domain-name=Default", "--os-identity-api-version=3"]
        typed = [shlex.split(command.replace("-prompt", f" {logins.PASSWORD}")) for command, _ in commands(source)]
        assert len(typed) == 4
        for program, *words in typed:
            done = clients.command(program, *login, *words).done()
            assert done.code == 0, done.err
        (settings,) = [block.text for block in source.blocks if block.language == "ini"]
        settings = settings.replace(
            "host = 192.0.2.11", f"host = 127.0.0.1\nbare_metal_port = {port}\nintrospection_port = 0"
        )
        settings = settings.replace("https://keystone.example.org:5000", url).replace("change-me", logins.PASSWORD)
        file = tmp_path / "ferroscope.conf"
        file.write_text(
            f"{settings}[database]\nconnection = {databases.sqlite(tmp_path)}\n[drivers]\nenabled = fake-hardware\n"
        )
        api = Played("api", tmp_path, [executable(), "api", "-c", str(file)])
        try:
            api.wait_ready()
            alice, bob = (
                identity.token(*who) for who in (("alice", logins.PASSWORD, None), ("bob", logins.PASSWORD, "research"))
            )
            http = urllib3.PoolManager(
                retries=False, timeout=PATIENCE, headers={"X-OpenStack-Ironic-API-Version": "1.95"}
            )

            def call(method: str, token: str, body: object = None) -> Any:
                headers = {"X-OpenStack-Ironic-API-Version": "1.95", "X-Auth-Token": token}
                return http.request(method, f"http://127.0.0.1:{port}/v1/nodes", json=body, headers=headers)

            for fields in ({"name": "ours", "owner": projects["research"]}, {"name": "theirs"}):
                assert call("POST", alice, {"driver": "fake-hardware", **fields}).status == 201
            names = [[node["name"] for node in call("GET", token).json()["nodes"]] for token in (alice, bob)]
            assert [sorted(some) for some in names] == [["ours", "theirs"], ["ours"]]
            assert call("POST", bob, {"driver": "fake-hardware"}).status == 403
            assert call("GET", "wrong").status == 401
        finally:
            api.end()
