"""An Ironic behind a real Keystone: logins, the catalog, tokens that expire, and what is refused, in both directions.

Ferroscope logs in to Ironic; where Ironic hands inspections over, it logs in to Ferroscope, too.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.nightly.openstack.ironic.interface import agreed, await_provision, enroll, inspect, install
from tests.nightly.openstack.ironic.place import Place, expected
from tests.support.bare_metal import Ironic
from tests.support.bare_metal import ironic as run_ironic
from tests.support.keystone import Keystone, keystone
from tests.support.processes import PATIENCE, until

# test_attached has all but the logins, and acceptance/test_keystone has those.
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
[DEFAULT]
enabled_inspect_interfaces = no-inspect,ferroscope
[ferroscope]
auth_type = password
auth_url = {url}
username = conductor
password = CONDUCTOR
user_domain_name = Default
project_name = service
project_domain_name = Default
status_check_period = 1
"""
_LOGIN = """\
auth_type = password
auth_url = {url}
username = inspector
password = {password}
user_domain_name = Default
system_scope = all
"""
# Seconds.
_TOKEN_CACHE_TIME = 5
_OURS = f"""[api]
auth_strategy = keystone
[keystone_authtoken]
auth_url = {{url}}
username = ferroscope
password = FERROSCOPE
token_cache_time = {_TOKEN_CACHE_TIME}
[registry]
sync_period = 30
"""


@pytest.fixture(scope="module")
def identity(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keystone]:
    with keystone(tmp_path_factory.mktemp("identity")) as running:
        made = running.identity
        roles = {role["name"]: role["id"] for role in made.call("GET", "/roles")["roles"]}
        service = made.make("project", name="service", domain_id="default")
        for name, role in (("ironic", "admin"), ("conductor", "service"), ("ferroscope", "service")):
            own = made.make("user", name=name, password=name.upper(), domain_id="default")
            made.call("PUT", f"/projects/{service}/users/{own}/roles/{roles[role]}")
        inspector = made.make("user", name="inspector", password=PASSWORD, domain_id="default")
        made.call("PUT", f"/system/users/{inspector}/roles/{roles['admin']}")
        onlooker = made.make("user", name="onlooker", password=PASSWORD, domain_id="default")
        made.call("PUT", f"/projects/{service}/users/{onlooker}/roles/{roles['reader']}")
        yield running


class Guarded(Ironic):
    """An Ironic that requires a login; the tests act on it as the operator."""

    identity: Keystone

    def answer(self, method: str, path: str, body: object = None, *, version: str = "") -> tuple[int, object]:
        status, found = super().answer(method, path, body, version=version)
        if status == 401:
            self.log_in(self.identity.identity.token("inspector", PASSWORD, None))
            status, found = super().answer(method, path, body, version=version)
        return status, found


@pytest.fixture(scope="module")
def ironic(identity: Keystone, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ironic]:
    extra = _KEYSTONE.format(url=identity.identity.url)
    Guarded.identity = identity
    directory = tmp_path_factory.mktemp("guarded")
    packages = install(directory)
    with run_ironic(directory / "ironic", kind=Guarded, keystone=extra, packages=packages) as running:
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
        [*command, "api", "-c", str(place.config)], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode
    return done.stdout + done.stderr


def set_role(identity: Keystone, name: str, role: str) -> None:
    """Give the user this role and no other one in the services' project."""
    made = identity.identity
    (user,), (project,) = (
        made.call("GET", f"/users?name={name}")["users"],
        made.call("GET", "/projects?name=service")["projects"],
    )
    roles = {one["name"]: one["id"] for one in made.call("GET", "/roles")["roles"]}
    place = f"/projects/{project['id']}/users/{user['id']}/roles"
    for one in made.call("GET", place)["roles"]:
        made.call("DELETE", f"{place}/{one['id']}")
    made.call("PUT", f"{place}/{roles[role]}")


class GuardedPlace(Place):
    """A Ferroscope that requires a login; the tests act on it as the operator."""

    identity: Keystone

    def call(self, method: str, path: str, body: Any = None, *, root: str = "") -> tuple[int, Any]:
        status, found = super().call(method, path, body, root=root)
        if status == 401:
            self._credentials = {"X-Auth-Token": self.identity.identity.token("inspector", PASSWORD, None)}
            status, found = super().call(method, path, body, root=root)
        return status, found


@pytest.fixture(scope="module")
def handed_over(identity: Keystone, ironic: Ironic, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedPlace]:
    """Give a Ferroscope to which Ironic hands inspections over; it is in the catalog."""
    GuardedPlace.identity = identity
    url = identity.identity.url
    login, ours = _LOGIN.format(url=url, password=PASSWORD), _OURS.format(url=url)
    place = GuardedPlace(tmp_path_factory.mktemp("handed-over"), ironic, login=login, extra=ours)
    service = identity.identity.make("service", type="baremetal-introspection", name="ferroscope")
    identity.identity.make(
        "endpoint", service_id=service, interface="internal", region_id="one", url=place.introspection
    )
    with place:
        yield place


def change_user(identity: Keystone, name: str, **fields: object) -> None:
    (user,) = identity.identity.call("GET", f"/users?name={name}")["users"]
    identity.identity.call("PATCH", f"/users/{user['id']}", {"user": fields})


def revoke_tokens(identity: Keystone, name: str = "inspector") -> None:
    """Make all tokens of the user invalid."""
    for enabled in (False, True):
        change_user(identity, name, enabled=enabled)


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
        assert PASSWORD not in place.output()


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
    assert f"no Ironic answers at {identity.identity.url[:-3]}" in refusal(
        tmp_path, ironic, f"{good}endpoint_override = {identity.identity.url[:-3]}\n"
    )


def test_an_inspection_is_handed_over_with_logins_in_both_directions(
    identity: Keystone, handed_over: GuardedPlace
) -> None:
    uuid, number = enroll(handed_over)
    inspect(handed_over.ironic, uuid)
    handed_over.await_state(uuid, "waiting")
    for user in ("inspector", "conductor"):
        revoke_tokens(identity, user)
    assert handed_over.call_back(number) == 202
    node = await_provision(handed_over, uuid, "manageable")
    assert (node["properties"]["memory_mb"], node["last_error"]) == (expected(number)["memory_mb"], None)
    assert handed_over.ironic.call("GET", f"/v1/nodes/{uuid}/inventory")["inventory"]
    assert agreed(handed_over, uuid) is None


def test_what_was_handed_over_survives_an_outage_of_keystone_and_a_change_of_credentials(
    identity: Keystone, handed_over: GuardedPlace
) -> None:
    uuid, number = enroll(handed_over)
    inspect(handed_over.ironic, uuid)
    handed_over.await_state(uuid, "waiting")
    identity.kill()
    try:
        assert until(lambda: "cannot validate tokens with Keystone" in handed_over.api.output())
    finally:
        identity.start()
        identity.wait_answers()
    assert until(lambda: agreed(handed_over, uuid)["silent_since"] is None)
    change_user(identity, "conductor", password="another-one")
    try:
        assert until(lambda: agreed(handed_over, uuid)["silent_since"] is not None)
        refused_at_start(handed_over, "Keystone rejected the credentials of [ferroscope]")
    finally:
        change_user(identity, "conductor", password="CONDUCTOR")
    assert handed_over.call_back(number) == 202
    node = await_provision(handed_over, uuid, "manageable")
    assert node["last_error"] is None
    set_role(identity, "conductor", "reader")
    time.sleep(_TOKEN_CACHE_TIME + 1)  # for so long, the conductor's token has its old role for us
    try:
        refused_at_start(handed_over, "a role that may see all nodes")
    finally:
        set_role(identity, "conductor", "service")


def test_a_role_that_is_removed_and_given_back_ends_no_inspection_and_hides_no_abort(
    identity: Keystone, handed_over: GuardedPlace
) -> None:
    (one, number), (two, _) = enroll(handed_over), enroll(handed_over)
    for uuid in (one, two):
        inspect(handed_over.ironic, uuid)
        handed_over.await_state(uuid, "waiting")
    set_role(identity, "conductor", "reader")  # which sees no nodes: Ferroscope answers 404
    try:
        assert until(lambda: all(agreed(handed_over, uuid)["silent_since"] is not None for uuid in (one, two)))
        handed_over.ironic.call("PUT", f"/v1/nodes/{two}/states/provision", {"target": "abort"})
        await_provision(handed_over, two, "inspect failed")
        assert agreed(handed_over, two) is not None
        assert (handed_over.state(one), handed_over.state(two)) == ("waiting", "waiting")
    finally:
        set_role(identity, "conductor", "service")
    assert until(lambda: agreed(handed_over, two) is None)
    handed_over.await_state(two, "error")
    assert handed_over.call_back(number) == 202
    assert await_provision(handed_over, one, "manageable")["last_error"] is None


def refused_at_start(place: Place, why: str) -> None:
    """Inspect a machine, see why Ferroscope cannot be used, and that the node can be inspected again."""
    uuid, _ = enroll(place)
    place.ironic.call("PUT", f"/v1/nodes/{uuid}/states/provision", {"target": "inspect"})
    node = await_provision(place, uuid, "inspect failed")
    assert why in node["last_error"]
    assert "CONDUCTOR" not in node["last_error"]
    assert agreed(place, uuid) is None
    place.ironic.provision(uuid, "manage", "manageable")
