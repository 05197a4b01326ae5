"""Checks of this host that need no database: configuration files, drivers, hooks, rules, storage, ports, proxy.

Checks change nothing and end within a timeout. Lines of configuration files are never shown.
"""

from __future__ import annotations

import http.client
import importlib.util
import ipaddress
import os
import shutil
import socket
import ssl
import stat
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from ferroscope.api.auth.configured import build_authentication, build_policy, policies_without_effect
from ferroscope.bus.checks import check_bus_setup
from ferroscope.config.coordination_options import place
from ferroscope.config.errors import SetupError
from ferroscope.config.load import files_with_secrets
from ferroscope.config.options import Settings
from ferroscope.contracts.bmc import Requirements
from ferroscope.contracts.store import CoordinationUnavailableError
from ferroscope.core.finding import API_ON_LOOPBACK, UNMANAGED_BOOT
from ferroscope.http_server.server import addresses, bind, check_anonymous
from ferroscope.http_server.tls import certificates
from ferroscope.liveness.service import build_coordination_service
from ferroscope.runtime import wiring
from ferroscope.runtime.externals import build_drivers
from ferroscope.runtime.system import SystemClock, service_group
from ferroscope.storage.stores import build_object_stores
from ferroscope_client.core.finding import Finding
from ferroscope_client.core.values import many

SERVED: Final = "port-served"

_ANSWER_SECONDS: Final = 3.0
# How the api advises whoever is told that the database has failed.
_DATABASE_FAILED: Final = b"ferroscope doctor"
_HEALTHY: Final = (200, b'{"status":"ok"}')


def examine(settings: Settings) -> Iterator[Finding]:
    """Yield the findings as the checks run."""
    yield from _drivers(settings)
    yield from _secret_sources(settings)
    yield _hooks(settings)
    yield _rules(settings)
    yield from _storage(settings)
    yield from _bus(settings)
    yield from _coordination(settings)
    yield from _tls(settings)
    yield from _ports(settings)
    yield from _ramdisks(settings)
    yield from _proxy(settings)
    yield from _authentication(settings)
    if settings.audit.log_file not in ("", "-"):
        yield from _audit_file(Path(settings.audit.log_file))


def readable_files(files: Sequence[str] | None) -> Iterator[Finding]:
    """Yield a finding for each configuration file with a secret that other users can read."""
    for path in files_with_secrets(files):
        try:
            status = path.stat()
        except OSError:
            continue
        if status.st_mode & stat.S_IROTH:
            summary = f"{path} contains a password and is readable by all users of this host"
            yield Finding("configuration-file", "wrong", summary, f"chmod o= {path}; then change the password")
        elif _foreign_group(status):
            summary = f"{path} contains a password and is readable by its group"
            advice = f"unless the group is that of the service: chmod g= {path}"
            yield Finding("configuration-file", "note", summary, advice)


def _foreign_group(status: os.stat_result) -> bool:
    """Whether a group other than the service's may read the file."""
    return bool(status.st_mode & stat.S_IRGRP) and status.st_gid != service_group()


def _drivers(settings: Settings) -> Iterator[Finding]:
    try:
        drivers = build_drivers(settings)
    except SetupError as exc:
        yield Finding("drivers", "wrong", exc.summary, exc.advice or "correct [drivers] enabled")
        return
    incomplete = set()
    for name, driver in drivers.items():
        if not isinstance(driver, Requirements):
            continue
        packages = [package for package in driver.packages if importlib.util.find_spec(package) is None]
        programs = [program for program in driver.programs if shutil.which(program) is None]
        advice = f"install it on all hosts with workers, or remove {name} from [drivers] enabled"
        if packages:
            summary = f"the driver {name} requires the Python package {packages[0]}, which is not installed"
            yield Finding("driver-incomplete", "wrong", summary, advice)
        elif programs:  # a note: the driver is enabled by default, and there may be no such BMC
            summary = f"the driver {name} requires the program {programs[0]}, which is not installed"
            yield Finding("driver-incomplete", "note", summary, advice)
        if packages or programs:
            incomplete.add(name)
    if usable := [name for name in drivers if name not in incomplete]:
        yield Finding("drivers", "ok", f"available drivers: {', '.join(usable)}")


def _secret_sources(settings: Settings) -> Iterator[Finding]:
    try:
        resolver = wiring.build_resolver(settings, threading.Event())
    except SetupError as exc:
        yield Finding("secret-sources", "wrong", exc.summary, exc.advice)
        return
    if resolver is not None:
        yield Finding("secret-sources", "ok", f"sources of secrets: {', '.join(settings.secrets.sources)}")


def _hooks(settings: Settings) -> Finding:
    from ferroscope.hooks.base import HookSetupError
    from ferroscope.hooks.pipeline import from_settings

    try:
        from_settings(settings.inspector)
    except HookSetupError as exc:
        return Finding("hooks", "wrong", str(exc), "correct [inspector] hooks")
    return Finding("hooks", "ok", f"hooks: {', '.join(settings.inspector.hooks)}")


def _rules(settings: Settings) -> Finding:
    try:
        rules = wiring.built_in_rules(settings)
    except SetupError as exc:
        advice = "correct [inspection_rules]; to check a file: ferroscope rule check FILE"
        return Finding("rules", "wrong", exc.summary, exc.advice or advice)
    return Finding("rules", "ok", f"built-in rules: {len(rules) or 'none'}")


def _storage(settings: Settings) -> Iterator[Finding]:
    try:
        build_object_stores(settings, threading.Event())
    except SetupError as exc:
        yield Finding("storage", "wrong", exc.summary, exc.advice or "correct [storage]")


def _bus(settings: Settings) -> Iterator[Finding]:
    """Connect to each broker as the service does."""
    broker = settings.bus.broker()
    if broker is None:
        return
    from ferroscope.remote.rabbitmq import BrokerError, probe

    try:
        check_bus_setup(broker)
    except SetupError as exc:
        yield Finding("bus", "wrong", exc.summary, exc.advice)
        return
    for host in broker.hosts:
        try:
            probe(broker, host)
        except BrokerError as exc:
            advice = "correct [bus] transport_url, or the broker; until then processes poll the database"
            yield Finding("bus", "wrong", f"cannot use the RabbitMQ of [bus] transport_url: {exc}", advice)
        else:
            yield Finding("bus", "ok", f"RabbitMQ: {host}")


def _coordination(settings: Settings) -> Iterator[Finding]:
    """Join the members at the coordination service for a moment, as a process with periodic tasks does."""
    member = "doctor"
    try:
        service = build_coordination_service(settings, member, threading.Event())
        if service is None:
            return
        try:
            service.join()
            alive = service.alive()
        finally:
            service.leave()
    except SetupError as exc:
        yield Finding("coordination", "wrong", exc.summary, exc.advice)
        return
    except CoordinationUnavailableError as exc:
        summary = f"cannot use the coordination service {place(settings.coordination)}: {exc}"
        yield Finding("coordination", "wrong", summary, "check the service and the section [coordination]")
        return
    others = len(alive - {member})
    yield Finding(
        "coordination", "ok", f"coordination service: {place(settings.coordination)}; {many(others, 'member')}"
    )
    session, ttl = settings.coordination.session_timeout, settings.lease.numbers().ttl
    if session >= ttl:
        summary = f"[coordination] session_timeout is {session} s, but leases expire after {ttl:g} s anyway"
        yield Finding("coordination-slow", "note", summary, "set a shorter session_timeout, or longer leases")


def _ports(settings: Settings) -> Iterator[Finding]:
    for option in ("bare_metal_port", "introspection_port"):
        port: int = getattr(settings.api, option)
        if port:
            yield _port(addresses(settings.api.host), port, option, tls=settings.api.tls)


def _tls(settings: Settings) -> Iterator[Finding]:
    """Load the certificate as the api does, and check its validity and who can read its key."""
    try:
        loaded = certificates(settings.api)
    except SetupError as exc:
        yield Finding("certificate", "wrong", exc.summary, exc.advice)
        return
    if loaded is None:
        return
    yield loaded.problem() or Finding("certificate", "ok", f"certificate: {settings.api.tls_certificate_file}")
    key = Path(settings.api.tls_key_file)
    if key.stat().st_mode & stat.S_IROTH:
        summary = f"[api] tls_key_file {key} is readable by all users of this host"
        yield Finding("key-file", "wrong", summary, f"chmod o= {key}; then replace the key")


def _port(hosts: Sequence[str], port: int, option: str, *, tls: bool) -> Finding:
    """Bind the port on each address as the api does, and close it again."""
    for host in hosts:
        try:
            bind(host, port).close()
        except PermissionError:
            summary = f"permission denied: cannot bind port {port}"
            return Finding("port-taken", "wrong", summary, f"choose another [api] {option}")
        except OSError as exc:
            return _port_taken(host, port, option, exc, tls=tls)
    return Finding("port", "ok", f"port {port} is free on {', '.join(hosts)}; no api is running on this host")


def _port_taken(host: str, port: int, option: str, error: OSError, *, tls: bool) -> Finding:
    """Return the address in use on the port: for a wildcard address, that may be a listener on any single address."""
    every = {"::": ("::1", "127.0.0.1"), "0.0.0.0": ("127.0.0.1",)}  # noqa: S104  # compared, not listened on
    responses = [
        response for reach in every.get(host, (host,)) if (response := _health(reach, port, tls=tls)) is not None
    ]
    if _HEALTHY in responses:
        return Finding(SERVED, "ok", f"port {port} is in use by a healthy api")
    if any(_DATABASE_FAILED in body for _, body in responses):
        summary = f"port {port} is in use by an api that cannot use its database"
        return Finding(SERVED, "note", summary, "see the checks of the database")
    if responses:
        summary = f"the health check of the service on port {port} failed (HTTP {responses[0][0]})"
        return Finding("port-taken", "wrong", summary, "if it is Ferroscope, see its log; otherwise stop it")
    advice = f"find the process that uses it (ss -ltnp 'sport = :{port}'), or choose another [api] {option}"
    summary = f"cannot bind port {port} on {host} ({error.strerror}), and no api responds there"
    return Finding("port-taken", "wrong", summary, advice)


def _health(host: str, port: int, *, tls: bool) -> tuple[int, bytes] | None:
    connection = http.client.HTTPConnection(host, port, timeout=_ANSWER_SECONDS)
    if tls:  # this check is not about whether clients can verify the certificate
        unverified = ssl._create_unverified_context()  # noqa: S323  # nothing secret is sent
        connection = http.client.HTTPSConnection(host, port, timeout=_ANSWER_SECONDS, context=unverified)
    try:
        connection.request("GET", "/healthcheck")
        response = connection.getresponse()
        return response.status, response.read(1000)
    except ssl.SSLError as exc:
        if exc.reason == "TLSV13_ALERT_CERTIFICATE_REQUIRED":  # it works, and demands another client
            return _HEALTHY
        return None
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def _ramdisks(settings: Settings) -> Iterator[Finding]:
    if settings.api.bare_metal_port and settings.hidden_from_ramdisks:
        yield API_ON_LOOPBACK
    if settings.boots_unmanaged_by_silence:
        yield UNMANAGED_BOOT


def _authentication(settings: Settings) -> Iterator[Finding]:
    try:
        check_anonymous(settings, api=True)
        build_authentication(settings, SystemClock())
        build_policy(settings, SystemClock())
    except SetupError as exc:
        yield Finding("authentication", "wrong", exc.summary, exc.advice or "correct [api] auth_strategy")
        return
    api = settings.api
    if api.auth_strategy == "noauth" and not api.loopback_only:
        summary = "authentication is disabled: anyone who can reach the API has full control of all machines"
        yield Finding("authentication", "note", summary, "set [api] auth_strategy, and remove allow_anonymous")
        return
    if unknown := policies_without_effect(settings):
        summary = f"policies in {settings.oslo_policy.policy_file} that have no effect here: {', '.join(unknown)}"
        yield Finding("policies", "note", summary, "correct those that are misspelt: ferroscope policy list")
    if api.auth_strategy == "http_basic":
        yield from _user_file(Path(api.http_basic_auth_user_file))
    yield Finding("authentication", "ok", f"authentication: {api.auth_strategy}")


def _audit_file(path: Path) -> Iterator[Finding]:
    if path.is_file() and path.stat().st_mode & stat.S_IROTH:
        summary = f"[audit] log_file {path} contains names that users typed, and is readable by all users of this host"
        yield Finding("audit-file", "note", summary, f"chmod o= {path}, and set the mode where it is rotated")


def _user_file(path: Path) -> Iterator[Finding]:
    status = path.stat()
    if status.st_mode & (stat.S_IROTH | stat.S_IWOTH | stat.S_IWGRP):
        summary = f"{path} contains password hashes and can be read or changed by other users of this host"
        yield Finding("user-file", "wrong", summary, f"chmod 0640 {path}; then change the passwords")
    elif _foreign_group(status):
        summary = f"{path} contains password hashes and is readable by its group"
        yield Finding("user-file", "note", summary, f"unless the group is that of the service: chmod g= {path}")


def _proxy(settings: Settings) -> Iterator[Finding]:
    """Report a proxy that is not trusted: limits by source address then count all clients behind it as one."""
    api = settings.api
    if not api.public_url or not api.bare_metal_port or api.trusted_proxies:
        return
    try:
        url = urlsplit(api.public_url)
        port = url.port or {"http": 80, "https": 443}.get(url.scheme)
    except ValueError:  # another check reports an invalid URL
        return
    # A scheme or port other than the api's belongs to a proxy. An address of another host may be a proxy.
    own = ("https" if api.tls else "http", api.bare_metal_port)
    if (url.scheme, port) != own or _is_elsewhere(url.hostname or ""):
        summary = f"the API is behind a proxy ({api.public_url}), but no proxy is trusted: limits by source address "
        advice = "set [api] trusted_proxies to the addresses from which the proxy connects"
        yield Finding("proxy-not-trusted", "note", f"{summary}count all clients behind it as one", advice)


def _is_elsewhere(host: str) -> bool:
    """Return whether this is an IP address that this host does not have."""
    try:
        family = socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET
    except ValueError:  # a name is not resolved: that could take long
        return False
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((host, 0))
    except OSError:
        return True
    return False
