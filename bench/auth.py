"""``auth``: what it costs to authenticate and authorize a call, by the kind of its credentials.

Real api processes, one for each kind, answer the same call over one connection at a time; what is measured is their
CPU time. All credentials were used before, as those of a client that goes on calling: nothing is hashed or asked of
Keystone any more. The rounds of all kinds alternate, so that a busy machine slows down all alike.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import msgspec
import urllib3

from bench.cycle import scratch
from bench.databases import database
from bench.quantiles import middle
from bench.service import Service, executable, service
from tests.support.keystone import Identity, keystone

KINDS: Final = ("noauth", "http_basic", "token", "keystone")
_PASSWORD: Final = "pa55-of-the-bench"
_NODE: Final = {"name": "node-1", "driver": "fake-hardware"}
_VERSION: Final = {"X-OpenStack-Ironic-API-Version": "1.96"}


class Costs(msgspec.Struct, frozen=True):
    """Milliseconds of CPU time of the api per call, of each round."""

    kind: str
    rounds: list[float]

    @property
    def median(self) -> float:
        return middle(self.rounds)


def measure(directory: Path, *, calls: int, rounds: int, kinds: tuple[str, ...] = KINDS) -> list[Costs]:
    """Get one node ``calls`` times in each of the rounds, with each kind of credentials."""
    found: dict[str, list[float]] = {kind: [] for kind in kinds}
    with scratch(directory) as place, ExitStack() as stack:
        callers = {kind: stack.enter_context(_caller(kind, place / kind)) for kind in kinds}
        for _ in range(rounds):
            for kind, call in callers.items():
                found[kind].append(call(calls))
    return [Costs(kind, values) for kind, values in found.items()]


@contextmanager
def _caller(kind: str, place: Path) -> Iterator[Callable[[int], float]]:
    """Run an api of this kind, and yield what makes calls and returns the milliseconds of CPU time of one."""
    place.mkdir()
    with ExitStack() as stack:
        identity = stack.enter_context(keystone(place / "identity")).identity if kind == "keystone" else None
        base = stack.enter_context(database("sqlite", place))
        running = stack.enter_context(
            service(place, base.url, roles=("api",), api=_options(kind, place), extra=_keystone(identity))
        )
        http = urllib3.PoolManager(num_pools=1, maxsize=1, retries=False, timeout=30.0)
        headers = _VERSION | _credentials(kind, running, identity)
        made = http.request("POST", f"{running.url}/v1/nodes", json=_NODE, headers=headers)
        if made.status != 201:
            raise RuntimeError(f"{kind}: status {made.status}: {made.data.decode()[:300]}")

        def call(count: int) -> float:
            before = running.cpu()["api"]
            for _ in range(count):
                answer = http.request("GET", f"{running.url}/v1/nodes/node-1", headers=headers)
                if answer.status != 200:
                    raise RuntimeError(f"{kind}: status {answer.status}")
            return (running.cpu()["api"] - before) / count * 1000

        call(50)
        yield call


def _options(kind: str, place: Path) -> str:
    """Return lines of ``[api]``; tokens are accepted with every strategy but noauth."""
    if kind in ("noauth", "keystone"):
        return f"auth_strategy = {kind}\n"
    file = place / "htpasswd"
    words = [executable(), "user", "add", "operator", "--role", "admin", "--file", str(file)]
    subprocess.run(words, input=f"{_PASSWORD}\n", text=True, capture_output=True, check=True)
    return f"auth_strategy = http_basic\nhttp_basic_auth_user_file = {file}\n"


def _keystone(identity: Identity | None) -> str:
    """Return ``[keystone_authtoken]`` for a user of the service that is made for it."""
    if identity is None:
        return ""
    admin = identity.token("admin", "ADMIN", "admin")
    roles = {role["name"]: role["id"] for role in identity.call("GET", "/roles", token=admin)["roles"]}
    project = identity.make("project", admin, name="service", domain_id="default")
    for name, where, role in (("ferroscope", f"projects/{project}", "service"), ("operator", "system", "admin")):
        user = identity.make("user", admin, name=name, password=_PASSWORD, domain_id="default")
        identity.call("PUT", f"/{where}/users/{user}/roles/{roles[role]}", token=admin)
    options = {"auth_url": identity.url, "www_authenticate_uri": identity.url, "username": "ferroscope"}
    lines = [f"{name} = {value}" for name, value in (options | {"password": _PASSWORD}).items()]
    return "\n".join(["[keystone_authtoken]", *lines, ""])


def _credentials(kind: str, running: Service, identity: Identity | None) -> dict[str, str]:
    if kind == "http_basic":
        return dict(urllib3.make_headers(basic_auth=f"operator:{_PASSWORD}"))
    if kind == "token":
        line = [executable(), "token", "create", "bench", "--role", "admin", "-c", str(running.config), "-o", "json"]
        done = subprocess.run(line, capture_output=True, text=True, check=True)
        return {"Authorization": f"Bearer {json.loads(done.stdout)['token']}"}
    return {"X-Auth-Token": identity.token("operator", _PASSWORD, None)} if identity else {}
