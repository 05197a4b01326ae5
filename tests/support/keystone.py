"""A Keystone of a test's own, and a cloud of it with users, projects, a catalogue and a Swift that takes its tokens.

They need ``.swift-venv`` (``tools/setup.sh swift``); a missing one is an error, for a skipped test
proves nothing. All is made over the Identity API, as operators make it.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from ferroscope.config.options import SwiftSettings
from tests import ROOT
from tests.support.daemons import MissingServerError, Swift
from tests.support.installation import Played
from tests.support.processes import PATIENCE, free_port
from tests.support.servers import made_once

USER: Final = "inspector"
PASSWORD: Final = "pa55-of-the-user"
DOMAIN: Final = "machines"
PROJECT: Final = "hardware"
# Of tokens, in seconds: a test waits for the end of one, but on a busy machine a log-in and its use take some.
LIFETIME: Final = 8
_START_SECONDS: Final = 150.0
_PYTHON: Final = ROOT / ".swift-venv" / "bin" / "python"
_COMMAND: Final = [str(_PYTHON), "-W", "ignore", str(Path(__file__).parent / "swift" / "keystone_server.py")]


class Identity:
    """The Identity API as ``admin``; ``url`` ends with /v3."""

    def __init__(self, url: str) -> None:
        self.url = url

    def call(self, method: str, path: str, body: object = None, token: str = "") -> Any:
        """Return the answer's document; a token of the admin's goes along, unless another is given."""
        return self._send(method, path, body, {"X-Auth-Token": token or self.token("admin", "ADMIN", "admin")})[1]

    def token(self, user: str, password: str, project: str | None, domain: str = "Default") -> str:
        """Return a token of the user's, for the project, or for the whole system if there is none."""
        who = {"user": {"name": user, "password": password, "domain": {"name": domain}}}
        scope = {"project": {"name": project, "domain": {"name": domain}}} if project else {"system": {"all": True}}
        return self._token({"methods": ["password"], "password": who}, scope=scope)

    def token_of_application(self, ident: str, secret: str) -> str:
        """Return a token for an application credential, which lives no longer than that."""
        return self._token(
            {"methods": ["application_credential"], "application_credential": {"id": ident, "secret": secret}}
        )

    def _token(self, identity: dict[str, Any], **scope: Any) -> str:
        body = {"auth": {"identity": identity, **scope}}
        return str(self._send("POST", "/auth/tokens", body, {})[0]["X-Subject-Token"])

    def make(self, kind: str, token: str = "", **fields: Any) -> str:
        """Make a thing of this kind, such as a project; return its id."""
        return str(self.call("POST", f"/{kind}s", {kind: fields}, token)[kind]["id"])

    def described(self, token: str) -> Any:
        """Return what the Identity API says of a token, asked by itself."""
        return self._send("GET", "/auth/tokens", None, {"X-Auth-Token": token, "X-Subject-Token": token})[1]["token"]

    def delete_token(self, token: str) -> None:
        """Revoke a token, as a log-out does."""
        own = self.token("admin", "ADMIN", "admin")
        self._send("DELETE", "/auth/tokens", None, {"X-Auth-Token": own, "X-Subject-Token": token})

    def answers(self) -> bool:
        try:
            self._send("GET", "", None, {})
        except OSError:
            return False
        return True

    def _send(self, method: str, path: str, body: object, headers: dict[str, str]) -> tuple[Any, Any]:
        request = urllib.request.Request(
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json", **headers},
        )
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return answer.headers, json.loads(answer.read() or b"null")


class Cloud:
    """What a test needs to know: the Identity API, and how Swift is reached."""

    def __init__(self, identity: Identity, swift: str) -> None:
        self.identity = identity
        self.swift = swift
        self.application: tuple[str, str] = ("", "")

    def settings(self, **changes: Any) -> SwiftSettings:
        """Return the user's ``[swift]``."""
        of_user = {"username": USER, "password": PASSWORD, "user_domain_name": DOMAIN}
        of_project = {"project_name": PROJECT, "project_domain_name": DOMAIN}
        return SwiftSettings(**{"auth_url": self.identity.url, **of_user, **of_project, **changes})

    def application_settings(self, **changes: Any) -> SwiftSettings:
        """Return a ``[swift]`` with an application credential."""
        ident, secret = self.application
        named = {"application_credential_id": ident, "application_credential_secret": secret}
        return SwiftSettings(**{"auth_url": self.identity.url, **named, **changes})


class Keystone(Played):
    """One process, which keeps its data and its port when it is killed and started again."""

    def __init__(self, directory: Path, lifetime: int) -> None:
        """``lifetime``: that of tokens, in seconds."""
        if not _PYTHON.exists():
            raise MissingServerError("the tests need OpenStack Keystone in .swift-venv; run: tools/setup.sh swift")
        data, self.port = directory / "keystone", free_port()
        shutil.copytree(made_once("keystone", _install), data)
        self.identity = Identity(f"http://127.0.0.1:{self.port}/v3")
        super().__init__("keystone", directory, [*_COMMAND, str(data), str(self.port), str(lifetime)])

    def wait_answers(self) -> None:
        """Return when it answers."""
        self.wait_until(self.identity.answers, seconds=_START_SECONDS)


def _install(directory: Path) -> None:
    directory.mkdir()
    subprocess.run([*_COMMAND, str(directory)], check=True, capture_output=True)


@contextmanager
def keystone(directory: Path, *, lifetime: int = 3600) -> Iterator[Keystone]:
    """Run a Keystone with nobody but ``admin`` until the end of the block."""
    made = Keystone(directory, lifetime)
    try:
        made.wait_answers()
        yield made
    finally:
        made.end()


@contextmanager
def cloud(directory: Path) -> Iterator[Cloud]:
    """Run both until the end of the block."""
    port, daemon = free_port(), Swift()
    (directory / "swift").mkdir(parents=True)
    with keystone(directory, lifetime=LIFETIME) as running:
        command = [*daemon.command(directory / "swift", port), running.identity.url]
        swift = Played("swift", directory, command, cwd=directory / "swift")
        try:
            swift.wait_until(lambda: daemon.answers(port), seconds=_START_SECONDS)
            made = Cloud(running.identity, f"http://127.0.0.1:{port}")
            _furnish(made)
            yield made
        finally:
            swift.end()


def _furnish(cloud: Cloud) -> None:
    """Make Swift's own user, a domain with users and projects, and a catalogue of two regions."""
    identity = cloud.identity
    roles = {role["name"]: role["id"] for role in identity.call("GET", "/roles")["roles"]}

    def user(name: str, password: str, project: str, domain: str, role: str) -> str:
        made = identity.make("user", name=name, password=password, domain_id=domain)
        identity.call("PUT", f"/projects/{project}/users/{made}/roles/{roles[role]}")
        return made

    user("swift", "SWIFT", identity.make("project", name="service", domain_id="default"), "default", "admin")
    domain = identity.make("domain", name=DOMAIN)
    project = identity.make("project", name=PROJECT, domain_id=domain)
    user_id = user(USER, PASSWORD, project, domain, "member")
    user("onlooker", PASSWORD, project, domain, "reader")
    identity.make("user", name="stranger", password=PASSWORD, domain_id=domain)
    identity.make("region", id="two")
    service = identity.make("service", type="object-store", name="swift")
    for region, interface, base in (
        ("one", "public", "http://127.0.0.1:1"),
        ("two", "public", "http://127.0.0.1:1"),
        ("two", "internal", cloud.swift),
    ):
        url = f"{base}/v1/AUTH_%(project_id)s"
        identity.make("endpoint", service_id=service, interface=interface, region_id=region, url=url)
    token = identity.token(USER, PASSWORD, PROJECT, DOMAIN)
    body = {"application_credential": {"name": "ferroscope", "roles": [{"name": "member"}]}}
    made = identity.call("POST", f"/users/{user_id}/application_credentials", body, token)["application_credential"]
    cloud.application = (made["id"], made["secret"])
