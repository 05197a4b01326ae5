"""The wording of user-visible messages, in one table: how each is provoked, and its exact text.

No other test compares sentences: they assert codes, fields, HTTP statuses, exit codes and identifiers. To add a row,
add ``(name, provoke, text)`` to the table of its area; ``provoke`` returns the text that a user would read.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from ferroscope.api.http import errors
from ferroscope.bmc.drivers import DriverOptions, Limits, load_drivers
from ferroscope.bmc.ipmi.info import read as read_ipmi
from ferroscope.bmc.redfish.info import read as read_redfish
from ferroscope.boot_config.dnsmasq import PoolError, parse
from ferroscope.cli.client import UnreachableError
from ferroscope.cli.exits import Failure
from ferroscope.cli.main import unexpected
from ferroscope.config.errors import StartError
from ferroscope.config.load import ConfigurationError, load
from ferroscope.config.options import ApiSettings, InspectorSettings, PxeFilterSettings, Settings
from ferroscope.config.plugins import PluginError
from ferroscope.contracts.errors import BmcError, ConflictError, StaleError, StoreUnavailableError
from ferroscope.core.boot import callback_url
from ferroscope.core.delivery import IllegalEventError, advance
from ferroscope.core.model import Member, Rule
from ferroscope.core.states import Event, State
from ferroscope.doctor import host
from ferroscope.hardware.query import QueryError
from ferroscope.hardware.query import parse as parse_query
from ferroscope.hooks.base import HookSetupError
from ferroscope.hooks.loader import load as load_hooks
from ferroscope.hooks.root_device import HintError, Hints
from ferroscope.pxe_filter import checks
from ferroscope.remote.addresses import Networks
from ferroscope.rules.data import InvalidRuleError
from ferroscope.rules.engine import compile_rule
from ferroscope.telemetry import finding
from ferroscope.telemetry.finding import Finding
from tests.api.service import Service
from tests.fast.cli.running import run
from tests.support import databases, misses

UUID: Final = "5b1a0d5c-3f26-4a3e-9f0e-5a1d1b7f9a01"
NODE: Final = {"uuid": UUID, "driver": "fake-hardware", "name": "rack1-u07"}


# Responses of the API: ``provoke`` gets a service with the node ``NODE`` and returns the error's message.


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    served = Service(databases.sqlite(tmp_path_factory.mktemp("wording")))
    served.enrol(**NODE)
    yield served
    served.close()


def _call(method: str, path: str, body: Any = None, **more: Any) -> Callable[[Service], str]:
    def provoke(service: Service) -> str:
        result = service.bare_metal.call(method, path, body, **more)
        assert result.status_code >= 400
        return str(json.loads(result.json["error_message"])["faultstring"])

    return provoke


def _translated(exc: Exception) -> Callable[[Service], str]:
    def provoke(_service: Service) -> str:
        translated = errors.translate(exc)
        assert translated is not None
        return translated.message

    return provoke


API: Final[tuple[tuple[str, Callable[[Service], str], str], ...]] = (
    (
        "unknown path",
        _call("GET", "/v1/nonsense"),
        "/v1/nonsense does not exist. GET /openapi.json lists all paths.",
    ),
    (
        "method not allowed",
        _call("PUT", "/v1/nodes"),
        "PUT is not allowed for /v1/nodes; allowed: GET, HEAD, POST, OPTIONS.",
    ),
    ("no such node", _call("GET", "/v1/nodes/rack9"), "Node rack9 could not be found."),
    (
        "name in use",
        _call("POST", "/v1/nodes", {"driver": "sim", "name": "rack1-u07"}),
        'The name "rack1-u07" is already in use; choose another name.',
    ),
    (
        "UUID in use",
        _call("POST", "/v1/nodes", {"driver": "sim", "uuid": UUID}),
        f"UUID {UUID} is already in use; omit it to have one generated.",
    ),
    (
        "inspection of a node that is being verified",
        _translated(IllegalEventError(State.NONE, Event.INSPECT, verifying=True)),
        "Inspect is not possible while the node is being verified; allowed now: delete.",
    ),
    (
        "MAC address in use",
        _translated(ConflictError("address", "52:54:00:12:34:56")),
        "MAC address 52:54:00:12:34:56 is already in use by another port; delete that port first.",
    ),
    (
        "modified concurrently",
        _translated(StaleError()),
        "The node was modified concurrently; read it again and repeat the request.",
    ),
    (
        "database outage",
        _translated(StoreUnavailableError("connection refused")),
        "The database is unavailable; nothing was changed. Try again in a second.",
    ),
    ("no body", _call("POST", "/v1/nodes"), "The request has no body; a JSON body is required."),
    (
        "wrong type",
        _call("POST", "/v1/nodes", {"driver": 1}),
        "Invalid request body: Expected `str`, got `int` - at `$.driver`. GET /openapi.json returns its schema.",
    ),
    (
        "unknown query parameter",
        _call("GET", f"/v1/nodes/{UUID}?field=uuid"),
        "Unknown query parameter: 'field'. Supported: fields.",
    ),
    (
        "invalid MAC address",
        _call("POST", "/v1/ports", {"node_uuid": UUID, "address": "52-54"}),
        "Invalid address '52-54': it must be a MAC address such as 52:54:00:12:34:56.",
    ),
    (
        "unsupported microversion",
        _call("GET", "/v1/nodes", version="1.999"),
        "Version 1.999 is not supported by this service. The supported version range is: [1.1, 1.115].",
    ),
    (
        "path in a newer microversion",
        _call("GET", f"/v1/nodes/{UUID}/inventory", version="1.80"),
        f"/v1/nodes/{UUID}/inventory requires API version 1.81 or newer; the request uses 1.80.",
    ),
    (
        "web page",
        _call("POST", "/v1/nodes", NODE, headers={"Origin": "http://example.org"}),
        "Cross-site requests from web pages are not allowed (Origin, Sec-Fetch-Site).",
    ),
    (
        "verb in the wrong state",
        _call("PUT", f"/v1/nodes/{UUID}/states/provision", {"target": "provide"}),
        f"Node {UUID} is enroll (inspection: none): provide is not possible; allowed now: inspect, manage.",
    ),
)


def _wrong(table: Iterable[tuple[str, Callable[..., str], str]], *given: Any) -> Iterator[str]:
    """Yield the rows whose text is another one."""
    for name, provoke, text in table:
        if (found := provoke(*given)) != text:
            yield f"{name}: {found!r}, not {text!r}"


def test_api(service: Service) -> None:
    misses.none(_wrong(API, service))


def test_internal_error_names_its_request(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **_options: object) -> None:
        raise KeyError("uuid")

    monkeypatch.setattr(service.store, "read", broken)
    result = service.bare_metal.get(f"/v1/nodes/{UUID}")
    request_id = result.headers["Openstack-Request-Id"]
    message = json.loads(result.json["error_message"])["faultstring"]
    assert message == f"Internal error; see the service log (request ID {request_id})."


# The command line: standard error of a command.


def _stderr(*arguments: str) -> Callable[[], str]:
    return lambda: run(*arguments).stderr


def _shown(failure: Failure) -> Callable[[], str]:
    def provoke() -> str:
        stream = io.StringIO()
        failure.show(stream)
        return stream.getvalue()

    return provoke


CLI: Final[tuple[tuple[str, Callable[[], str], str], ...]] = (
    (
        "unreachable",
        _shown(UnreachableError("http://127.0.0.1:6385", "connection refused")),
        "Error: cannot connect to the Bare Metal API at http://127.0.0.1:6385: connection refused\n"
        "  start it with 'ferroscope all', or set --url or FERROSCOPE_URL\n",
    ),
    (
        "internal error",
        _shown(unexpected(KeyError("uuid"))),
        "Error: internal error: KeyError: 'uuid'\n"
        "  run it again with 'ferroscope --debug ...', and report the output\n",
    ),
    (
        "no query",
        lambda: _stderr("search")().splitlines()[-1],
        "Error: missing QUERY; for example: ferroscope search 'memory_gb >= 512'",
    ),
    (
        "no nodes selected",
        lambda: _stderr("node", "manage")().splitlines()[-1],
        "Error: specify nodes, exactly one of --all, --failed and --state, or labels (-l rack=r1). NODE is a name, a "
        "UUID, a MAC address or a BMC address. A pattern such as 'rack1-*' selects all nodes with matching names.",
    ),
    (
        "empty identifier",
        _stderr("node", "show", ""),
        "Error: invalid identifier ''\n  if it comes from a variable in a script, check that the variable is set\n",
    ),
    (
        "not UTF-8",
        _stderr("node", "show", "\udcff"),
        "Error: an argument is not valid UTF-8\n",
    ),
    (
        "unknown command",
        lambda: _stderr("nodes", "list")().splitlines()[-1],
        "Error: No such command 'nodes'. Did you mean 'ferroscope node list' or 'ferroscope node'?",
    ),
    (
        "invalid MAC address of a port",
        lambda: _stderr("node", "create", "n1", "--driver", "sim", "--port", "52-54")().splitlines()[-1],
        "Error: Invalid value for '--port': invalid MAC address '52-54': expected, for example, 52:54:00:12:34:56",
    ),
    (
        "missing configuration file",
        _stderr("api", "-c", "/nonexistent/ferroscope.conf"),
        "Error: invalid configuration: no such configuration file: /nonexistent/ferroscope.conf\n",
    ),
    (
        "invalid URL",
        _stderr("node", "list", "--url", "localhost:6385"),
        'Error: invalid URL "localhost:6385": expected http://HOST[:PORT]\n'
        "  set --url or FERROSCOPE_URL, for example to http://127.0.0.1:6385\n",
    ),
)


def test_command_line() -> None:
    misses.none(_wrong(CLI))


# Configuration: what a start reports about the configuration file.


def _configuration(text: str) -> Callable[[Path], str]:
    def provoke(path: Path) -> str:
        file = path / "ferroscope.conf"
        file.write_text(text, encoding="utf-8")
        try:
            load([str(file)], {})
        except ConfigurationError as exc:
            return str(exc).replace(str(file), "FILE")
        return ""

    return provoke


CONFIGURATION: Final[tuple[tuple[str, Callable[[Path], str], str], ...]] = (
    (
        "not a number",
        _configuration("[api]\nthreads = many"),
        "[api] threads: 'many' is not a number (from FILE:2)",
    ),
    (
        "lease too short",
        _configuration("[lease]\nprofile = custom\nttl = 2\nrenew = 1.5"),
        "[lease] ttl is 2, but must be at least renew + margin + 0.5 = 3 s; otherwise a leader loses its lease before "
        "it can renew it",
    ),
    (
        "same port twice",
        _configuration("[api]\nbare_metal_port = 80\nintrospection_port = 80"),
        "[api] bare_metal_port and introspection_port are both 80; they must differ (0 disables one of them)",
    ),
    (
        "unknown option",
        _configuration("[worker]\nthread = 4"),
        "FILE:2: unknown option thread in [worker]; did you mean threads?",
    ),
    (
        "unknown section",
        _configuration("[workers]\nthreads = 4"),
        "FILE:1: unknown section [workers]; did you mean [worker]?",
    ),
)


def test_configuration(tmp_path: Path) -> None:
    misses.none(_wrong(CONFIGURATION, tmp_path))


# Findings of doctor and status: summary; advice.


def _finding(found: Finding) -> Callable[[], str]:
    return lambda: f"{found.summary}; {found.advice}"


MEMBER: Final = Member(id="m1", host="boot1", pid=4711, role="worker", expires_at=100.0)

FINDINGS: Final[tuple[tuple[str, Callable[[], str], str], ...]] = (
    (
        "dead member",
        _finding(finding.dead(MEMBER, 110.0)),
        "worker@boot1:4711 missed its heartbeats and has been considered dead for 10 s; its claims and leases were "
        "released; start it again; otherwise it is removed from this list after an hour",
    ),
    (
        "clock skew",
        _finding(finding.skew_of("boot1", 2.5)),
        "the clock of boot1 is 2.5 s ahead of the database's; this affects logs, not leases; synchronize the clock "
        "(chrony, NTP)",
    ),
    (
        "API on loopback",
        _finding(finding.API_ON_LOOPBACK),
        "the API listens on loopback only: ramdisks on other machines cannot call back; set [api] host to an address "
        "that machines can reach, or, behind a proxy, [api] public_url",
    ),
    (
        "proxy that is not trusted",
        lambda: _of_host("proxy-not-trusted", ApiSettings(public_url="https://bmaas.example.com")),
        "the API is behind a proxy (https://bmaas.example.com), but no proxy is trusted: limits by source address "
        "count all clients behind it as one; set [api] trusted_proxies to the addresses from which the proxy connects",
    ),
)


def _of_host(code: str, api: ApiSettings) -> str:
    (found,) = (one for one in host.examine(Settings(api=api)) if one.code == code)
    return _finding(found)()


def test_findings() -> None:
    misses.none(_wrong(FINDINGS))


# Errors of drivers, boot configuration, PXE filter, hooks, rules and searches: the exception's message.


def _raised(call: Callable[[], object]) -> Callable[[], str]:
    def provoke() -> str:
        with pytest.raises(
            (
                BmcError, PluginError, HintError, HookSetupError, IllegalEventError, InvalidRuleError, PoolError,
                QueryError, StartError, ValueError,
            )
        ) as caught:  # fmt: skip
            call()
        return str(caught.value)

    return provoke


def _pxe_filter(**options: Any) -> Callable[[], str]:
    return _raised(lambda: checks.check(Settings(pxe_filter=PxeFilterSettings(**options))))


ERRORS: Final[tuple[tuple[str, Callable[[], str], str], ...]] = (
    (
        "invalid callback URL",
        _raised(lambda: callback_url("192.0.2.1:6385")),
        "invalid URL '192.0.2.1:6385': expected http://HOST[:PORT] or https://HOST[:PORT]",
    ),
    (
        "illegal event",
        _raised(lambda: advance(State.PROCESSING, Event.INSPECT)),
        "cannot inspect while the inspection is processing; allowed: continue, timeout, abort, fail, delete",
    ),
    (
        "illegal event after a failure",
        _raised(lambda: advance(State.ERROR, Event.FINISH)),
        "cannot finish after the inspection has failed; allowed: inspect, reapply, enroll, delete, verify, set-power, "
        "set-boot-device, attach-vmedia, detach-vmedia, set-password",
    ),
    (
        "unknown driver",
        _raised(lambda: load_drivers(["nope"], DriverOptions(), [])),
        "[drivers] enabled has the unknown driver 'nope'",
    ),
    (
        "Redfish address missing",
        _raised(lambda: read_redfish({})),
        "redfish_address is missing in driver_info; set it to the URL of the Redfish service",
    ),
    (
        "Redfish address without a scheme that is supported",
        _raised(lambda: read_redfish({"redfish_address": "ftp://192.0.2.1"})),
        "invalid URL in redfish_address: expected https://HOST[:PORT] or http://HOST[:PORT]",
    ),
    (
        "Redfish password over HTTP",
        _raised(
            lambda: read_redfish(
                {"redfish_address": "http://192.0.2.1", "redfish_username": "u", "redfish_password": "long enough"}
            )
        ),
        "redfish_address uses http, which would send redfish_password unencrypted; use https, or set [drivers] "
        "allow_http_passwords = true",
    ),
    (
        "BMC in a network that is not allowed",
        _raised(
            lambda: read_redfish({"redfish_address": "https://192.0.2.1"}, Limits(networks=Networks(["10.0.0.0/8"])))
        ),
        "BMC 192.0.2.1 is not in any of the networks in [drivers] bmc_networks",
    ),
    (
        "IPMI address missing",
        _raised(lambda: read_ipmi({})),
        "ipmi_address is missing in driver_info; set it to the IP address or host name of the BMC",
    ),
    (
        "range of addresses",
        _raised(lambda: parse("10.0.0.50", hosts=1)),
        "invalid range '10.0.0.50': expected FIRST-LAST, such as 10.0.0.50-10.0.0.229 "
        "('' does not appear to be an IPv4 or IPv6 address)",
    ),
    (
        "no interfaces for the PXE filter",
        _pxe_filter(),
        "[pxe_filter] interfaces is empty; set it to the interfaces on which machines boot",
    ),
    (
        "unknown backend of the PXE filter",
        _pxe_filter(interfaces=("eth1",), backends=("nftable",)),
        "[pxe_filter] backends has the unknown backend 'nftable'; available: nftables, iptables, dnsmasq, noop",
    ),
    (
        "order of hooks",
        _raised(lambda: load_hooks(InspectorSettings(hooks=("ports", "validate-interfaces")))),
        "[inspector] hooks = ports,validate-interfaces: ports depends on validate-interfaces: move "
        "validate-interfaces before ports",
    ),
    (
        "size in a root device hint",
        _raised(lambda: Hints({"size": "large"})),
        "the hint size must be a whole number of GiB greater than 0, not large",
    ),
    (
        "missing argument of an action",
        _raised(lambda: compile_rule(Rule(uuid="r1", actions=[{"op": "fail", "args": {}}]))),
        "actions[0]: args.msg is missing",
    ),
    (
        "unknown field in a search",
        _raised(lambda: parse_query("memry > 3")),
        "unknown field memry; did you mean memory, memory_mb, memory_gb? (at character 1)",
    ),
    (
        "unit in a search",
        _raised(lambda: parse_query("memory >= 3i")),
        "unknown unit in 3i (at character 11)",
    ),
)


def test_errors() -> None:
    misses.none(_wrong(ERRORS))
