"""An Ironic behind a real Keystone: logins, the catalog, tokens that expire, and what is refused at the start."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from tests.integration.ironic.place import Place, expected
from tests.support.bare_metal import Ironic
from tests.support.bare_metal import ironic as run_ironic
from tests.support.keystone import Keystone, keystone

PASSWORD = "pa55-of-the-service"
_KEYSTONE = """\
[keystone_authtoken]
auth_url = {url}
www_authenticate_uri = {url}
auth_type = password
username = ironic
password = IRONIC
user_domain_name = Default
project_name = service
project_domain_name = Default
token_cache_time = -1
"""
_LOGIN = """\
auth_type = password
auth_url = {url}
username = inspector
password = {password}
user_domain_name = Default
system_scope = all
"""


@pytest.fixture(scope="module")
def identity(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keystone]:
    with keystone(tmp_path_factory.mktemp("identity")) as running:
        made = running.identity
        roles = {role["name"]: role["id"] for role in made.call("GET", "/roles")["roles"]}
        service = made.make("project", name="service", domain_id="default")
        own = made.make("user", name="ironic", password="IRONIC", domain_id="default")
        made.call("PUT", f"/projects/{service}/users/{own}/roles/{roles['admin']}")
        inspector = made.make("user", name="inspector", password=PASSWORD, domain_id="default")
        made.call("PUT", f"/system/users/{inspector}/roles/{roles['admin']}")
        onlooker = made.make("user", name="onlooker", password=PASSWORD, domain_id="default")
        made.call("PUT", f"/projects/{service}/users/{onlooker}/roles/{roles['reader']}")
        yield running


class Guarded(Ironic):
    """An Ironic that requires a login; the tests act on it with a new token each time."""

    identity: Keystone

    def answer(self, method: str, path: str, body: object = None) -> tuple[int, object]:
        if hasattr(self, "identity"):
            self.log_in(self.identity.identity.token("inspector", PASSWORD, None))
        return super().answer(method, path, body)


@pytest.fixture(scope="module")
def ironic(identity: Keystone, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ironic]:
    extra = _KEYSTONE.format(url=identity.identity.url)
    Guarded.identity = identity
    with run_ironic(tmp_path_factory.mktemp("guarded"), kind=Guarded, keystone=extra) as running:
        service = identity.identity.make("service", type="baremetal", name="ironic")
        for interface, url in (("public", "http://127.0.0.1:1"), ("internal", running.url)):
            fields = {"service_id": service, "interface": interface, "region_id": "one", "url": url}
            identity.identity.make("endpoint", **fields)
        yield running


@contextmanager
def attached(directory: Path, ironic: Ironic, login: str) -> Iterator[Place]:
    with Place(directory, ironic, login=login) as place:
        yield place


def refusal(directory: Path, ironic: Ironic, login: str) -> str:
    """Return what the api says when it does not start."""
    place = Place(directory, ironic, login=login)
    command = [sys.executable, "-m", "ferroscope"]
    subprocess.run([*command, "db", "upgrade", "-c", str(place.config)], check=True, capture_output=True)
    done = subprocess.run(
        [*command, "api", "-c", str(place.config)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode
    return done.stdout + done.stderr


def revoke_tokens(identity: Keystone) -> None:
    """Make all tokens of the service's user invalid."""
    (user,) = identity.identity.call("GET", "/users?name=inspector")["users"]
    for enabled in (False, True):
        identity.identity.call("PATCH", f"/users/{user['id']}", {"user": {"enabled": enabled}})


def test_the_endpoint_is_in_the_catalog_and_rejected_tokens_are_renewed(
    identity: Keystone, ironic: Ironic, tmp_path: Path
) -> None:
    login = _LOGIN.format(url=identity.identity.url, password=PASSWORD)
    with attached(tmp_path, ironic, login) as place:
        uuid, number = place.enroll()
        place.inspect(uuid)
        place.await_state(uuid, "waiting")
        revoke_tokens(identity)
        assert place.call_back(number) == 202
        place.await_state(uuid, "finished")
        assert ironic.node(uuid)["properties"]["memory_mb"] == expected(number)["memory_mb"]
        assert PASSWORD not in place.said()


def test_a_cloud_of_clouds_yaml(
    identity: Keystone, ironic: Ironic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    auth = {"auth_url": identity.identity.url, "username": "inspector", "password": PASSWORD, "system_scope": "all"}
    cloud = {"auth": auth | {"user_domain_name": "Default"}, "region_name": "one", "interface": "internal"}
    (tmp_path / "clouds.yaml").write_text(yaml.safe_dump({"clouds": {"mine": cloud}}))
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(tmp_path / "clouds.yaml"))
    with attached(tmp_path, ironic, "cloud = mine") as place:
        uuid, number = place.enroll()
        place.inspected(uuid, number)


def test_what_keystone_or_ironic_refuses_is_refused_at_the_start(
    identity: Keystone, ironic: Ironic, tmp_path: Path
) -> None:
    good = _LOGIN.format(url=identity.identity.url, password=PASSWORD)
    said = refusal(tmp_path, ironic, good.replace(PASSWORD, "wrong-password"))
    assert "Keystone rejected the credentials of [ironic]" in said
    assert "wrong-password" not in said
    assert "[ironic] valid_interfaces" in refusal(tmp_path, ironic, f"{good}region_name = elsewhere\n")
    assert "auth_url" in refusal(tmp_path, ironic, good.replace("/v3", "/nothing"))
    unauthenticated = f"auth_type = none\nendpoint_override = {ironic.url}\n"
    assert "cannot use the Ironic of [ironic]" in refusal(tmp_path, ironic, unauthenticated)
    assert f"there is no Ironic at {identity.identity.url[:-3]}" in refusal(
        tmp_path, ironic, f"{good}endpoint_override = {identity.identity.url[:-3]}\n"
    )
