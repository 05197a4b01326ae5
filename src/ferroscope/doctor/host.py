"""What ``ferroscope doctor`` looks at on this host before it asks the database: files, drivers, hooks, rules, ports.

Like all checks: it changes nothing and gives up in time. It never shows a line of a configuration file.
"""

from __future__ import annotations

import http.client
import importlib.util
import shutil
import stat
import threading
from collections.abc import Iterator, Sequence
from typing import Final

from ferroscope.config.load import files_with_secrets
from ferroscope.config.options import Settings
from ferroscope.contracts.bmc import Requirements
from ferroscope.runtime import wiring
from ferroscope.runtime.http_server import addresses, bind
from ferroscope.runtime.system import SetupError
from ferroscope.telemetry.finding import API_ON_LOOPBACK, Finding

SERVED: Final = "port-served"

_ANSWER_SECONDS: Final = 3.0


def examine(settings: Settings) -> Iterator[Finding]:
    """Yield the findings, as they are made."""
    yield from _drivers(settings)
    yield _hooks(settings)
    yield _rules(settings)
    yield from _storage(settings)
    yield from _ports(settings)
    yield from _ramdisks(settings)


def readable_files(files: Sequence[str] | None) -> Iterator[Finding]:
    """Yield a finding for each configuration file with a secret that others than its owner may read."""
    for path in files_with_secrets(files):
        try:
            mode = path.stat().st_mode
        except OSError:
            continue
        if mode & stat.S_IROTH:
            said = f"{path} holds a password, and every user of this host may read it"
            yield Finding("configuration-file", "wrong", said, f"chmod o= {path}; then change the password")
        elif mode & stat.S_IRGRP:
            said = f"{path} holds a password, and its group may read it"
            yield Finding("configuration-file", "note", said, f"unless the group is the service's own: chmod g= {path}")


def _drivers(settings: Settings) -> Iterator[Finding]:
    try:
        drivers = wiring.build_drivers(settings)
    except SetupError as exc:
        yield Finding("drivers", "wrong", exc.summary, exc.advice or "correct [drivers] enabled")
        return
    incomplete = set()
    for name, driver in drivers.items():
        if not isinstance(driver, Requirements):
            continue
        packages = [one for one in driver.packages if importlib.util.find_spec(one) is None]
        programs = [one for one in driver.programs if shutil.which(one) is None]
        advice = f"install it on all hosts with workers, or take {name} out of [drivers] enabled"
        if packages:
            said = f"the driver {name} needs the Python package {packages[0]}, which is not installed"
            yield Finding("driver-incomplete", "wrong", said, advice)
        elif programs:  # it is of no use to those who have no such BMC
            said = f"the driver {name} needs the program {programs[0]}, which this host does not have"
            yield Finding("driver-incomplete", "note", said, advice)
        if packages or programs:
            incomplete.add(name)
    if usable := [name for name in drivers if name not in incomplete]:
        yield Finding("drivers", "ok", f"drivers that can be used: {', '.join(usable)}")


def _hooks(settings: Settings) -> Finding:
    from ferroscope.hooks.base import HookSetupError
    from ferroscope.hooks.pipeline import from_settings

    try:
        from_settings(settings.inspector)
    except HookSetupError as exc:
        return Finding("hooks", "wrong", str(exc), "correct [inspector] hooks")
    return Finding("hooks", "ok", f"hooks that can be used: {', '.join(settings.inspector.hooks)}")


def _rules(settings: Settings) -> Finding:
    try:
        found = wiring.built_in_rules(settings)
    except SetupError as exc:
        advice = "correct [inspection_rules]; see also: ferroscope rule check FILE"
        return Finding("rules", "wrong", exc.summary, exc.advice or advice)
    return Finding("rules", "ok", f"built-in rules: {len(found) or 'none'}")


def _storage(settings: Settings) -> Iterator[Finding]:
    try:
        wiring.build_shelves(settings, threading.Event())
    except SetupError as exc:
        yield Finding("storage", "wrong", exc.summary, exc.advice or "correct [storage]")


def _ports(settings: Settings) -> Iterator[Finding]:
    for option in ("bare_metal_port", "introspection_port"):
        port: int = getattr(settings.api, option)
        if port:
            yield _port(addresses(settings.api.host), port, option)


def _port(hosts: Sequence[str], port: int, option: str) -> Finding:
    """Take the port as the api would, on each address, and give it back."""
    for host in hosts:
        try:
            bind(host, port).close()
        except PermissionError:
            said = f"permission denied: this user cannot bind port {port}"
            return Finding("port-taken", "wrong", said, f"choose another [api] {option}")
        except OSError as exc:
            return _taken(host, port, option, exc)
    return Finding("port", "ok", f"port {port} is free on {', '.join(hosts)}: no api runs on this host, and one could")


def _taken(host: str, port: int, option: str, why: OSError) -> Finding:
    """See who has it: on a wildcard address it may be anybody who listens on any one of them."""
    every = {"::": ("::1", "127.0.0.1"), "0.0.0.0": ("127.0.0.1",)}  # noqa: S104  # compared, not listened on
    answers = [answer for reach in every.get(host, (host,)) if (answer := _ask(reach, port)) is not None]
    if (200, b'{"status":"ok"}') in answers:
        return Finding(SERVED, "ok", f"port {port} is in use by an api that is healthy")
    if answers:
        said = f"what listens on port {port} answers {answers[0][0]} to a health check"
        return Finding("port-taken", "wrong", said, "if it is Ferroscope, its log says why; else stop it")
    advice = f"see who has it (ss -ltnp 'sport = :{port}'), or choose another [api] {option}"
    said = f"port {port} cannot be opened on {host} ({why.strerror}), and no api answers there"
    return Finding("port-taken", "wrong", said, advice)


def _ask(host: str, port: int) -> tuple[int, bytes] | None:
    connection = http.client.HTTPConnection(host, port, timeout=_ANSWER_SECONDS)
    try:
        connection.request("GET", "/healthcheck")
        answer = connection.getresponse()
        return answer.status, answer.read(1000)
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def _ramdisks(settings: Settings) -> Iterator[Finding]:
    if settings.api.bare_metal_port and settings.hidden_from_ramdisks:
        yield API_ON_LOOPBACK
