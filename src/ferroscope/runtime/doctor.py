"""What ``ferroscope doctor`` looks at: each check is a sentence, and where something is wrong, what to do.

A check changes nothing that matters, gives up in time, and shows no secret. One that cannot be made
because an earlier one failed is left out: the earlier one says why.
"""

from __future__ import annotations

import http.client
import os
import socket
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from sqlalchemy.exc import SQLAlchemyError

from ferroscope.adapters.sql import migrate
from ferroscope.config.settings import Settings
from ferroscope.domain.model import Member
from ferroscope.observe import party
from ferroscope.ports.errors import LeaseHeldError, LeaseLostError, StoreUnavailableError
from ferroscope.ports.store import Transaction
from ferroscope.runtime import boot_checks, database_file, gate_checks, wiring
from ferroscope.runtime.backend import Backend, open_backend, schema_problem
from ferroscope.runtime.check import Check
from ferroscope.runtime.clock import SystemClock
from ferroscope.runtime.http import addresses, bind
from ferroscope.runtime.life import SetupError

_LEASE: Final = "ferroscope/doctor"
_ANSWER_SECONDS: Final = 3.0
_OLD_REQUEST: Final = 60.0
_HEALTHY: Final = "in use by an api that is healthy"


def examine(settings: Settings) -> Iterator[Check]:
    """Yield one check after the other, as they are made."""
    yield _drivers(settings)
    yield _hooks(settings)
    yield _rules(settings)
    ports = list(_ports(settings))
    yield from ports
    yield from boot_checks.examine(settings.boot, settings.pxe_filter)
    yield from gate_checks.examine(settings)
    backend = None
    try:
        missing = _missing_file(settings, served=any(_HEALTHY in port.sentence for port in ports))
        if missing is not None:
            yield missing
            return
        yield from _readable_file(settings)
        backend = open_backend(settings, clock=SystemClock(), stop=threading.Event(), listen=False)
        yield from _database(settings, backend)
    except SetupError as exc:
        sentence, _, advice = str(exc).partition("; ")
        yield Check("database", "wrong", sentence, advice or "correct it")
    except SQLAlchemyError as exc:
        yield Check("database", "wrong", f"[database] connection cannot be used: {_told(exc)}", "correct it")
    finally:
        if backend is not None:
            backend.close()


def _drivers(settings: Settings) -> Check:
    try:
        drivers = wiring.build_drivers(settings)
    except SetupError as exc:
        return Check("drivers", "wrong", str(exc), "correct [drivers] enabled")
    return Check("drivers", "ok", f"the drivers {', '.join(drivers)} can be used")


def _hooks(settings: Settings) -> Check:
    from ferroscope.hooks.errors import HookSetupError
    from ferroscope.hooks.pipeline import from_settings

    try:
        from_settings(settings.inspector)
    except HookSetupError as exc:
        return Check("hooks", "wrong", str(exc), "correct [inspector] hooks")
    return Check("hooks", "ok", f"the hooks {', '.join(settings.inspector.hooks)} can be used")


def _rules(settings: Settings) -> Check:
    try:
        found = wiring.built_in_rules(settings)
    except SetupError as exc:
        return Check("rules", "wrong", str(exc), "correct [inspection_rules]; see also: ferroscope rule check FILE")
    return Check("rules", "ok", f"the {len(found)} built-in rules can be used")


def _ports(settings: Settings) -> Iterator[Check]:
    for option in ("bare_metal_port", "introspection_port"):
        port: int = getattr(settings.api, option)
        if port:
            yield _port(addresses(settings.api.host), port, option)


def _port(hosts: Sequence[str], port: int, option: str) -> Check:
    """Take the port as the api would, on each address, and give it back."""
    for host in hosts:
        try:
            bind(host, port).close()
        except PermissionError:
            advice = f"choose another [api] {option}"
            return Check("port", "wrong", f"permission denied: cannot bind port {port}", advice)
        except OSError as exc:
            return _taken(host, port, option, exc)
    return Check("port", "ok", f"port {port} is free: no api runs on this host, and one could")


def _taken(host: str, port: int, option: str, why: OSError) -> Check:
    reach = {"::": "::1", "0.0.0.0": "127.0.0.1"}.get(host, host)  # noqa: S104  # compared, not listened on
    connection = http.client.HTTPConnection(reach, port, timeout=_ANSWER_SECONDS)
    try:
        connection.request("GET", "/healthcheck")
        answer = connection.getresponse()
        body = answer.read(1000)
    except (OSError, http.client.HTTPException):
        advice = f"see who has it (ss -ltnp 'sport = :{port}'), or choose another [api] {option}"
        return Check(
            "port", "wrong", f"port {port} cannot be opened ({why.strerror}), and no api answers there", advice
        )
    finally:
        connection.close()
    if answer.status == 200 and body == b'{"status":"ok"}':
        return Check("port", "ok", f"port {port} is {_HEALTHY}")
    return Check(
        "port", "wrong", f"what listens on port {port} answers {answer.status} to a health check",
        "if it is Ferroscope, its log says why; else stop it",
    )  # fmt: skip


def _missing_file(settings: Settings, *, served: bool) -> Check | None:
    """A SQLite file that is not there yet is no fault, and looking must not make it."""
    file = database_file.missing(settings.database)
    if file is None:
        return None
    directory = file.absolute().parent
    if not os.access(directory, os.W_OK):
        advice = "make it, or name another one in [database] connection"
        return Check("database", "wrong", f"the directory {directory} is not there or cannot be written to", advice)
    if served:
        said = f"an api answers on this host, but the file {file} is not there"
        advice = "it was deleted, and what that api writes is lost: stop it; or this is not that api's configuration"
        return Check("database", "wrong", said, advice)
    advice = "ferroscope all makes it when it starts; or run: ferroscope db upgrade"
    return Check("database", "note", f"the file {file} does not exist yet", advice)


def _readable_file(settings: Settings) -> Iterator[Check]:
    """A SQLite file holds the passwords of BMCs; others on this host must not read it."""
    path = database_file.file_of(settings.database)
    if path is None or not path.is_file() or not path.stat().st_mode & 0o077:
        return
    sentence = f"the file {path} holds passwords of BMCs, and users other than its owner may read or write it"
    yield Check("database file", "note", sentence, f"unless that is wanted: chmod go= {path}*")


def _database(settings: Settings, backend: Backend) -> Iterator[Check]:
    where = database_file.place(settings.database)
    try:
        kind, schema, needed = backend.describe()
    except StoreUnavailableError as exc:
        advice = "is it running, may this host reach it, do user and password fit? [database] connection says where"
        yield Check("database", "wrong", f"{where} does not answer: {_told(exc)}", advice)
        return
    yield Check("database", "ok", f"{where} answers ({kind})")
    if schema != needed:
        yield Check("schema", "wrong", *schema_problem(schema))
        return
    yield Check("schema", "ok", f"the schema is {migrate.HEAD}, which is this release's")
    yield from _guarded("clock", lambda: [_clock(backend)])
    yield from _guarded("writing", lambda: [_writing(backend)])
    yield from _guarded("members", lambda: list(_members(settings, backend)))


def _guarded(name: str, check: Callable[[], list[Check]]) -> list[Check]:
    """Return what a check says; a database that fails in between is what it says then."""
    try:
        return check()
    except StoreUnavailableError as exc:
        advice = "is the disk full, the database read-only, or somebody blocking it? Its own log says more"
        return [Check(name, "wrong", f"the database failed at this: {_told(exc)}", advice)]


def _clock(backend: Backend) -> Check:
    clock = SystemClock()
    skew = min((backend.store.read(lambda tx: clock.time() - tx.now) for _ in range(3)), key=abs)
    if abs(skew) > party.MAX_SKEW:
        sentence, _, advice = party.skew_sentence(socket.gethostname(), skew).rpartition("; ")
        return Check("clock", "wrong", sentence, advice)
    return Check("clock", "ok", f"this host's clock is within {max(abs(skew), 0.01):.2f} s of the database's")


def _writing(backend: Backend) -> Check:
    holder = f"doctor-{uuid.uuid4()}"
    try:
        lease = backend.store.write(lambda tx: tx.leases.acquire(_LEASE, holder, 5.0))
        backend.store.write(lambda tx: tx.leases.release(lease))
    except (LeaseHeldError, LeaseLostError):
        return Check("writing", "ok", "the database can be written to: another doctor is at it")
    return Check("writing", "ok", "the database can be written to, durably")


def _members(settings: Settings, backend: Backend) -> Iterator[Check]:
    def read(tx: Transaction) -> tuple[list[Member], float, float, dict[str, bool]]:
        oldest = max((tx.now - row.oldest for row in tx.figures.backlog()), default=0.0)
        held = {lease.name: lease.held for lease in tx.leases.list("periodic/")}
        return list(tx.members.list()), tx.now, oldest, held

    members, now, oldest, held = backend.store.read(read)
    alive = [member for member in members if member.is_alive(now)]
    for member in members:
        if member not in alive:
            said = (
                f"{party.name_of(member)} has not been heard of for {now - member.expires_at:.0f} s longer than it may"
            )
            yield Check(
                "members", "note", f"{said} and counts as dead; what it held is free", "start it again, or leave it"
            )
    working = [member for member in alive if member.works]
    if not working:
        yield Check("members", "note", "no worker is alive", "start one: ferroscope worker (or ferroscope all)")
    else:
        yield Check("members", "ok", f"{len(alive)} processes are alive, {len(working)} of them carry out requests")
        yield _leader(settings, held)
    if oldest > _OLD_REQUEST:
        yield Check(
            "queue", "note", f"the oldest request has waited for {oldest:.0f} s",
            "see who does what: ferroscope status; start more workers, or see why they fail in their log",
        )  # fmt: skip
    told = party.about(settings, [], migrate.HEAD, skew=None, loops={})
    me = Member(id="", host=socket.gethostname(), pid=0, role="this configuration", detail=told)
    problems = party.drift([me, *alive]) + party.skewed(alive)
    for problem in problems:
        sentence, _, advice = problem.rpartition("; ")
        yield Check("drift", "wrong", sentence, advice)
    if not problems and alive:
        yield Check("drift", "ok", "all processes that are alive have the settings of this configuration")


def _leader(settings: Settings, held: dict[str, bool]) -> Check:
    if not settings.inspector.timeout_period:
        return Check("leases", "note", "nobody looks for overdue inspections", "set [inspector] timeout_period")
    if held.get("periodic/timeouts"):
        return Check("leases", "ok", "somebody leads the search for overdue inspections")
    advice = "look again in a few seconds: one leads as soon as the lease of the one before has expired"
    return Check("leases", "note", "nobody leads the search for overdue inspections at this moment", advice)


def _told(exc: Exception) -> str:
    """Return an error in a line; SQLAlchemy's own may quote anything, so of them only their kind is told."""
    return str(exc) if isinstance(exc, StoreUnavailableError) else type(exc).__name__
