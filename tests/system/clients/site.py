"""One installation under test: api and worker as processes, a database, and a simulated fleet.

Clients act on it through ``baremetal``, ``openstack`` and ``call``; what they have really done is read
without them, by plain HTTP and from the counters of the fleet.
"""

from __future__ import annotations

import configparser
import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import urllib3

from bench.service import Service, service
from ferroscope_sim.inventory import bmc_address, generate, pxe_mac
from ferroscope_sim.model import FleetSettings
from ferroscope_sim.run import FleetThread
from tests.support.processes import until
from tests.system.clients.environment import Clients, Done, Running, value

FLEET: Final = 200
# Each name is a machine with that outcome; tests take them one by one.
SPECIAL: Final = tuple(
    f"sim-{outcome}-{number}" for outcome in ("timeout", "ramdisk-error", "bmc-dead") for number in range(1, 21)
)
_SETTINGS: Final = """\
[worker]
threads = 4
[drivers]
command_timeout = 0.5
enabled = sim,fake-hardware,redfish,ipmi
"""


class Machine(msgspec.Struct, frozen=True):
    """A simulated machine that no other test has: what an operator knows of it before it is enrolled."""

    name: str
    driver_info: dict[str, str]
    mac: str
    number: int

    def sends(self) -> Any:
        """Return what its ramdisk will call back with."""
        return msgspec.json.decode(generate(self.number))


class Site:
    """``bare_metal`` and ``introspection`` are the roots of the two APIs."""

    def __init__(
        self, running: Service, fleet: FleetThread, clients: Clients, headers: Mapping[str, str] | None = None
    ) -> None:
        """``headers``: those that log in, where that is needed."""
        configured = configparser.ConfigParser(interpolation=None, strict=False)
        configured.read(running.config)
        self.bare_metal = running.url
        self.introspection = f"http://127.0.0.1:{configured['api']['introspection_port']}"
        self.config = running.config
        self.clients = clients
        self.fleet = fleet
        self._service = running
        self._members = {name: machine.member.number for name, machine in fleet.fleet.machines.items()}
        self._login = dict(headers or {})
        self._http = urllib3.PoolManager(
            headers={"X-OpenStack-Ironic-API-Version": "1.115"} | self._login, retries=False
        )
        self._plain = urllib3.PoolManager(retries=False)
        self._names = itertools.count(1)

    # What clients do.

    def baremetal(self, *words: str, code: int = 0) -> Done:
        """Run ``baremetal`` to its end; it must end with ``code``."""
        return ended(self.begin_baremetal(*words).done(), code)

    def begin_baremetal(self, *words: str) -> Running:
        """Start ``baremetal``."""
        return self.clients.command("baremetal", *self.standalone(), *words)

    def standalone(self) -> list[str]:
        """Return the options by which ``baremetal`` works without Keystone, and does not repeat what fails."""
        return ["--os-auth-type", "none", "--os-endpoint", self.bare_metal, "--max-retries", "0"]

    def openstack(self, *words: str, code: int = 0) -> Done:
        """Run ``openstack`` on the Introspection API to its end; it must end with ``code``."""
        return ended(self.begin_openstack(*words).done(), code)

    def begin_openstack(self, *words: str) -> Running:
        """Start ``openstack``."""
        endpoint = ["--os-auth-type", "none", "--os-endpoint", self.introspection]
        return self.clients.command("openstack", *endpoint, *words)

    def call(self, function: str, **arguments: Any) -> Any:
        """Return what a function of ``clients/`` returns; raise ``ClientError`` where it raises."""
        return value(self.begin(function, **arguments).done())

    def begin(self, function: str, **arguments: Any) -> Running:
        """Start a function of ``clients/``; it gets the roots of both APIs beside its arguments."""
        urls = {"bare_metal": self.bare_metal, "introspection": self.introspection}
        return self.clients.function(function, {"urls": urls, **arguments})

    # What is there.

    def machine(self, outcome: str = "") -> Machine:
        """Take a machine of the fleet that nobody has taken yet; ``outcome`` as in the simulator's reference."""
        prefix = f"sim-{outcome}-" if outcome else "sim-0"
        name = next((name for name in self._members if name.startswith(prefix)), None)
        assert name is not None, f"there are no more machines {prefix}*: raise FLEET or SPECIAL"
        number = self._members.pop(name)
        driver_info = {
            "sim_address": self.fleet.address,
            "sim_node": name,
            "sim_bmc_address": bmc_address(number),
        }
        return Machine(name, driver_info, pxe_mac(number), number)

    def enroll(self, machine: Machine, *, state: str = "manageable") -> str:
        """Enrol a machine without any client, where a test is about what comes later; return the node's UUID."""
        body = {"name": machine.name, "driver": "sim", "driver_info": machine.driver_info}
        return self._enroll(body, machine.mac, state)

    def enroll_fake(self, mac: str) -> str:
        """Enrol a node of the fake driver, for tests that play its ramdisk themselves; return its UUID."""
        return self._enroll({"name": f"fake-{next(self._names)}", "driver": "fake-hardware"}, mac, "manageable")

    def _enroll(self, body: dict[str, Any], mac: str, state: str) -> str:
        uuid = str(self.request("POST", "/v1/nodes", body)["uuid"])
        self.request("POST", "/v1/ports", {"node_uuid": uuid, "address": mac})
        if state == "manageable":
            self.request("PUT", f"/v1/nodes/{uuid}/states/provision", {"target": "manage"})
            self.await_state(uuid, "manageable")
        return uuid

    def inspect(self, uuid: str, *, until: str = "manageable") -> None:
        """Inspect a node without any client, and wait for the state that this leads to."""
        self.request("PUT", f"/v1/nodes/{uuid}/states/provision", {"target": "inspect"})
        self.await_state(uuid, until)

    def request(self, method: str, path: str, body: Any = None, *, version: str = "1.115") -> Any:
        """Return the document that the Bare Metal API answers with; it must be a success."""
        headers = {"X-OpenStack-Ironic-API-Version": version} | self._login
        answer = self._http.request(method, self.bare_metal + path, json=body, headers=headers)
        assert answer.status < 300, f"{method} {path}: {answer.status} {answer.data!r}"
        return msgspec.json.decode(answer.data) if answer.data else None

    def call_back(self, body: Any) -> str:
        """Call back without any agent, as it does: without a version; return the UUID in the answer."""
        answer = self._plain.request("POST", f"{self.bare_metal}/v1/continue_inspection", json=body)
        assert answer.status == 202, answer.data
        return str(msgspec.json.decode(answer.data)["uuid"])

    def get(self, path: str) -> Any:
        """Return the document at ``path`` of the Bare Metal API."""
        return self.request("GET", path)

    def exists(self, path: str) -> bool:
        return self._http.request("GET", self.bare_metal + path).status == 200

    def node(self, ident: str) -> Mapping[str, Any]:
        """Return the whole node."""
        node: Mapping[str, Any] = self.get(f"/v1/nodes/{ident}")
        return node

    def await_state(self, ident: str, state: str) -> None:
        """Wait until the node's provision state is ``state``."""
        path = f"/v1/nodes/{ident}?fields=provision_state,last_error"
        reached = until(lambda: self.get(path)["provision_state"] == state)
        assert reached, f"{ident} did not become {state}: {self.get(path)}\n{self.logs()}"

    def power_of(self, machine: Machine) -> str:
        """Return the power state of the machine itself."""
        return str(self.fleet.fleet.machines[machine.name].power)

    def count(self, machine: Machine, effect: str) -> int:
        """Return how often ``effect`` has happened to the machine itself."""
        counters = self.fleet.fleet.machines[machine.name].tally.counters
        return int(getattr(counters, effect))

    # What happens to it.

    def output(self) -> str:
        """Return all that the processes have logged."""
        return "".join(role.log.read_text(errors="replace") for role in self._service.roles.values())

    def logs(self) -> str:
        """Return the ends of the logs."""
        return "\n".join(f"--- {name}\n{role.tail()}" for name, role in self._service.roles.items())

    def faults(self) -> list[str]:
        """Return what the service itself has logged as an error."""
        return [line for role in self._service.roles.values() for line in role.faults()]


@contextmanager
def site(
    directory: Path,
    database_url: str,
    clients: Clients,
    *,
    extra: str = "",
    headers: Mapping[str, str] | None = None,
    faults: str = "",
) -> Iterator[Site]:
    """Run an installation; when it is stopped, it must have logged no errors but those with the text ``faults``."""
    with service(directory, database_url, extra=_SETTINGS + extra) as running:
        settings = FleetSettings(
            nodes=FLEET,
            special=SPECIAL,
            callback_url=f"{running.url}/v1/continue_inspection",
            boot_delay=0.3,
            boot_jitter=0.1,
            time_scale=0.05,
        )
        with FleetThread(settings) as fleet:
            place = Site(running, fleet, clients, headers)
            yield place
    assert [line for line in place.faults() if not faults or faults not in line] == []


def ended(done: Done, code: int) -> Done:
    """Return ``done``; it must have ended with ``code``."""
    assert done.code == code, f"ended with {done.code} instead of {code}\n{done.out}\n{done.err}"
    return done
