"""Installations that require a login: a Keystone with people in it, access tokens and an htpasswd file; clouds.yaml.

Each person has a cloud of the same name in clouds.yaml, which openstacksdk, ``baremetal`` and our own command line
read.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import urllib3
import yaml

from bench.service import executable
from tests.support import databases
from tests.support.keystone import Identity, Keystone, keystone
from tests.support.processes import PATIENCE, until
from tests.system.clients.environment import Clients, Done
from tests.system.clients.site import Site, site

PASSWORD: Final = "pa55-of-a-person"
PROJECT: Final = "rack"
# name -> project (None: the whole system), role
PEOPLE: Final[dict[str, tuple[str | None, str]]] = {
    "operator": (None, "admin"),
    "watcher": (None, "reader"),
    "tenant": (PROJECT, "member"),
    "viewer": (PROJECT, "reader"),
    "guest": (PROJECT, "guest"),
    "ferroscope": ("service", "service"),
}
# Seconds for which the api trusts a validated token, so that tests see the end of that.
CACHED: Final = 1
_VERSION: Final = {"X-OpenStack-Ironic-API-Version": "1.115"}
_KEYSTONE: Final = """\
[api]
auth_strategy = keystone
[keystone_authtoken]
auth_url = {url}
www_authenticate_uri = {url}
username = ferroscope
password = {password}
token_cache_time = {cached}
"""


class Locked:
    """A site that requires a login; ``clouds`` is the clouds.yaml of everybody."""

    def __init__(self, place: Site, clouds: dict[str, Any]) -> None:
        self.site = place
        self._http = urllib3.PoolManager(retries=False, timeout=PATIENCE)
        self.clouds_file = place.clients.home / ".config" / "openstack" / "clouds.yaml"
        self.clouds_file.parent.mkdir(parents=True, exist_ok=True)
        self.clouds_file.write_text(yaml.safe_dump({"clouds": clouds}))

    def baremetal(self, cloud: str, *words: str) -> Done:
        """Run ``baremetal`` with somebody's cloud, to its end."""
        return self.site.clients.command("baremetal", "--os-cloud", cloud, "--max-retries", "0", *words).done()

    def ferroscope(self, *words: str, stdin: str = "", **environment: str) -> Done:
        """Run our own command line, with nothing in its environment but what is given."""
        variables = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.site.clients.home),
            "OS_CLIENT_CONFIG_FILE": str(self.clouds_file),
            **environment,
        }
        done = subprocess.run(
            [executable(), *words],
            env=variables,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def ask(self, path: str = "/v1/nodes", method: str = "GET", body: Any = None, **headers: str) -> int:
        """Return the status of one call; header names have underscores here."""
        return self.answer(path, method, body, **headers)[0]

    def answer(self, path: str = "/v1/nodes", method: str = "GET", body: Any = None, **headers: str) -> tuple[int, Any]:
        """Return the status of one call, and the headers of its answer."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        given = self._http.request(method, self.site.bare_metal + path, json=body, headers=_VERSION | named)
        return given.status, given.headers


class Cloud(Locked):
    """A site that takes the tokens of ``keystone``."""

    def __init__(self, place: Site, running: Keystone) -> None:
        self.keystone = running
        self._application = 0
        super().__init__(place, _clouds(running.identity.url))

    def token(self, person: str) -> str:
        return self.keystone.identity.token(person, PASSWORD, PEOPLE[person][0])

    def token_for(self, person: str, seconds: float) -> str:
        """Return a token that lives for no more than these seconds."""
        identity, own = self.keystone.identity, self.token(person)
        user = identity.described(own)["user"]["id"]
        self._application += 1
        end = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(time.time() + seconds))
        body = {"application_credential": {"name": f"short-{self._application}", "expires_at": end}}
        made = identity.call("POST", f"/users/{user}/application_credentials", body, own)["application_credential"]
        return identity.token_of_application(made["id"], made["secret"])


@contextmanager
def cloud(directory: Path, clients: Clients) -> Iterator[Cloud]:
    """Run Keystone and an installation that takes its tokens."""
    with keystone(directory / "identity") as running:
        furnish(running.identity)
        extra = _KEYSTONE.format(url=running.identity.url, password=PASSWORD, cached=CACHED)
        headers = {"X-Auth-Token": running.identity.token("operator", PASSWORD, None)}
        # Keystone is killed and frozen.
        faults = "cannot validate tokens"
        with site(
            directory, databases.sqlite(directory), clients, extra=extra, headers=headers, faults=faults
        ) as place:
            _register(running.identity, place)
            yield Cloud(place, running)


@contextmanager
def basic(directory: Path, clients: Clients) -> Iterator[Locked]:
    """Run an installation with an htpasswd file that our own command line has written."""
    file = directory / "htpasswd"
    for name, role in (("operator", "admin"), ("watcher", "reader")):
        words = [executable(), "user", "add", name, "--role", role, "--file", str(file)]
        subprocess.run(words, input=f"{PASSWORD}\n", text=True, capture_output=True, check=True)
    extra = (
        f"[api]\nauth_strategy = http_basic\nhttp_basic_auth_user_file = {file}\n[log]\nlevel = debug\naccess = true\n"
    )
    headers = urllib3.make_headers(basic_auth=f"operator:{PASSWORD}")
    with site(directory, databases.sqlite(directory), clients, extra=extra, headers=headers) as place:
        tokens = {role: token(place, role) for role in ("admin", "reader")}
        clouds = {}
        for name in ("operator", "watcher"):
            given = {"username": name, "password": PASSWORD, "endpoint": place.bare_metal}
            clouds[f"basic-{name}"] = {"auth_type": "http_basic", "auth": given}
        wrong = {"username": "operator", "password": "wrong", "endpoint": place.bare_metal}
        clouds["basic-wrong"] = {"auth_type": "http_basic", "auth": wrong}
        for role, text in tokens.items():
            given = {"token": text, "endpoint": place.bare_metal}
            clouds[f"token-{role}"] = {"auth_type": "admin_token", "auth": given}
        for found in clouds.values():
            found["baremetal_endpoint_override"] = place.bare_metal
        yield Locked(place, clouds)


def token(place: Site, role: str, *words: str) -> str:
    """Return a new access token of the installation, with a name of its own; the api knows it."""
    name = f"{role}-{time.monotonic_ns()}"
    line = [executable(), "token", "create", name, "--role", role, "-c", str(place.config), "-o", "json", *words]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    made = str(json.loads(done.stdout)["token"])
    # An api that has just looked for an unknown token looks for the next one a second later.
    with urllib3.PoolManager(timeout=PATIENCE) as http:
        nodes, headers = f"{place.bare_metal}/v1/nodes", {"X-Auth-Token": made}
        assert until(lambda: http.request("GET", nodes, headers=headers).status != 401)
    return made


def _clouds(url: str) -> dict[str, Any]:
    clouds: dict[str, Any] = {}
    for person, (project, _) in PEOPLE.items():
        scope = (
            {"system_scope": "all"} if project is None else {"project_name": project, "project_domain_name": "Default"}
        )
        auth = {"auth_url": url, "username": person, "password": PASSWORD, "user_domain_name": "Default", **scope}
        clouds[person] = {
            "auth_type": "password",
            "auth": auth,
            "region_name": "one",
            "baremetal_status_code_retries": 0,
        }
    clouds["wrong"] = {**clouds["operator"], "auth": {**clouds["operator"]["auth"], "password": "wrong"}}
    return clouds


def furnish(identity: Identity) -> None:
    """Make the people, with their roles and projects."""
    admin = identity.token("admin", "ADMIN", "admin")
    roles = {role["name"]: role["id"] for role in identity.call("GET", "/roles", token=admin)["roles"]}
    roles["guest"] = identity.make("role", admin, name="guest")
    projects = {name: identity.make("project", admin, name=name, domain_id="default") for name in (PROJECT, "service")}
    for person, (project, role) in PEOPLE.items():
        admin = identity.token("admin", "ADMIN", "admin")  # one for all may be too old on a busy machine
        user = identity.make("user", admin, name=person, password=PASSWORD, domain_id="default")
        where = "system" if project is None else f"projects/{projects[project]}"
        identity.call("PUT", f"/{where}/users/{user}/roles/{roles[role]}", token=admin)


def _register(identity: Identity, place: Site) -> None:
    """Put the two APIs into the catalog."""
    admin = identity.token("admin", "ADMIN", "admin")
    for kind, url in (("baremetal", place.bare_metal), ("baremetal-introspection", place.introspection)):
        service = identity.make("service", admin, type=kind, name=kind)
        identity.make("endpoint", admin, service_id=service, interface="public", region_id="one", url=url)
