"""What ``ferroscope doctor`` looks at: in order, and what to do where something is wrong.

A check changes nothing that matters, gives up in time, and shows no secret. One that cannot be made
because an earlier one failed is left out: the earlier one says why.
"""

from __future__ import annotations

import os
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Final

from sqlalchemy.exc import SQLAlchemyError

from ferroscope.config.options import Settings
from ferroscope.contracts.errors import LeaseHeldError, LeaseLostError, StoreUnavailableError
from ferroscope.contracts.store import Transaction
from ferroscope.core.model import Member
from ferroscope.db import migrate
from ferroscope.doctor import boot, host, pxe_filter
from ferroscope.runtime import member as database_file
from ferroscope.runtime.backend import Backend, open_backend, schema_problem
from ferroscope.runtime.system import SetupError, SystemClock
from ferroscope.telemetry import finding
from ferroscope.telemetry.finding import Finding
from ferroscope.telemetry.members import about

_LEASE: Final = "ferroscope/doctor"
_OLD_REQUEST: Final = 60.0


def examine(settings: Settings) -> Iterator[Finding]:
    """Yield one check after the other, as they are made."""
    served = False
    for found in host.examine(settings):
        served = served or found.code == host.SERVED
        yield found
    yield from boot.examine(settings.boot, settings.pxe_filter)
    yield from pxe_filter.examine(settings)
    backend = None
    if old := database_file.left_behind(settings.database):
        said = f"{old} is the database of an earlier release, and is not used"
        advice = f"to go on with it: --database sqlite:///{old}, or stop the service and move it"
        yield Finding("database-left-behind", "note", said, advice)
    try:
        missing = _missing_file(settings, served=served)
        if missing is not None:
            yield missing
            return
        yield from _readable_file(settings)
        backend = open_backend(settings, clock=SystemClock(), stop=threading.Event(), listen=False)
        yield from _database(settings, backend)
    except SetupError as exc:
        yield Finding("database", "wrong", exc.summary, exc.advice or "correct it")
    except SQLAlchemyError as exc:
        yield Finding("database", "wrong", f"[database] connection cannot be used: {_told(exc)}", "correct it")
    finally:
        if backend is not None:
            backend.close()


def _missing_file(settings: Settings, *, served: bool) -> Finding | None:
    """A SQLite file that is not there yet is no fault, and looking must not make it."""
    file = database_file.missing(settings.database)
    if file is None:
        return None
    directory = file.absolute().parent
    if not os.access(directory, os.W_OK):
        advice = "make it, or name another one in [database] connection"
        return Finding("database", "wrong", f"the directory {directory} is not there or cannot be written to", advice)
    if served:
        said = f"an api answers on this host, but the file {file} is not there"
        advice = "it was deleted, and what that api writes is lost: stop it; or this is not that api's configuration"
        return Finding("database", "wrong", said, advice)
    advice = "ferroscope all makes it when it starts; or run: ferroscope db upgrade"
    return Finding("database", "note", f"the file {file} does not exist yet", advice)


def _readable_file(settings: Settings) -> Iterator[Finding]:
    """A SQLite file holds the passwords of BMCs; others on this host must not read it."""
    path = database_file.file_of(settings.database)
    if path is None or not path.is_file() or not path.stat().st_mode & 0o077:
        return
    summary = f"the file {path} holds passwords of BMCs, and users other than its owner may read or write it"
    yield Finding("database-file", "note", summary, f"unless that is wanted: chmod go= {path}*")


def _database(settings: Settings, backend: Backend) -> Iterator[Finding]:
    where = database_file.place(settings.database)
    try:
        kind, schema, needed = backend.describe()
    except StoreUnavailableError as exc:
        advice = "is it running, may this host reach it, do user and password fit? [database] connection says where"
        yield Finding("database", "wrong", f"{where} does not answer: {_told(exc)}", advice)
        return
    yield Finding("database", "ok", f"{where} answers ({kind})")
    if schema != needed:
        yield Finding("schema", "wrong", *schema_problem(schema))
        return
    yield Finding("schema", "ok", f"the schema is {migrate.HEAD}, which is this release's")
    yield from _guarded("clock", lambda: [_clock(backend), *_steps(backend)])
    yield from _guarded("writing", lambda: [_writing(backend)])
    yield from _guarded("members", lambda: list(_members(settings, backend)))


def _guarded(name: str, check: Callable[[], list[Finding]]) -> list[Finding]:
    """Return what a check says; a database that fails in between is what it says then."""
    try:
        return check()
    except StoreUnavailableError as exc:
        advice = "is the disk full, the database read-only, or somebody blocking it? Its own log says more"
        return [Finding(name, "wrong", f"the database failed at this: {_told(exc)}", advice)]


def _clock(backend: Backend) -> Finding:
    clock = SystemClock()
    skew = min((backend.store.read(lambda tx: clock.time() - tx.now) for _ in range(3)), key=abs)
    if abs(skew) > finding.MAX_SKEW:
        return finding.skew_of(socket.gethostname(), skew)
    return Finding("clock", "ok", f"this host's clock is within {max(abs(skew), 0.01):.2f} s of the database's")


def _steps(backend: Backend) -> list[Finding]:
    steps, now = backend.store.read(lambda tx: (tx.clock_steps.list(), tx.now))
    return finding.clock_steps(steps, now)


def _writing(backend: Backend) -> Finding:
    holder = f"doctor-{uuid.uuid4()}"
    try:
        lease = backend.store.write(lambda tx: tx.leases.acquire(_LEASE, holder, 5.0))
        backend.store.write(lambda tx: tx.leases.release(lease))
    except (LeaseHeldError, LeaseLostError):
        return Finding("writing", "ok", "write check skipped: another doctor is running")
    return Finding("writing", "ok", "the database can be written to, durably")


def _members(settings: Settings, backend: Backend) -> Iterator[Finding]:
    def read(tx: Transaction) -> tuple[list[Member], float, float, dict[str, bool]]:
        oldest = max((tx.now - row.oldest for row in tx.statistics.backlog()), default=0.0)
        held = {lease.name: lease.held for lease in tx.leases.list("periodic/")}
        return list(tx.members.list()), tx.now, oldest, held

    members, now, oldest, held = backend.store.read(read)
    alive = [member for member in members if member.is_alive(now)]
    for member in finding.missing(members, now):
        yield finding.dead(member, now)
    working = [member for member in alive if member.works]
    if not working:
        yield Finding("no-worker", "note", "no worker is alive", "start one: ferroscope worker (or ferroscope all)")
    else:
        yield Finding("members", "ok", f"processes alive: {len(alive)}; that carry out requests: {len(working)}")
        yield _leader(settings, held)
    if oldest > _OLD_REQUEST:
        yield Finding(
            "queue-old", "note", f"the oldest request has waited for {oldest:.0f} s",
            "see who does what: ferroscope status; start more workers, or see why they fail in their log",
        )  # fmt: skip
    told = about(settings, [], migrate.HEAD, skew=None, loops={})
    me = Member(id="", host=socket.gethostname(), pid=0, role="this configuration", detail=told)
    yield from finding.told(alive)
    problems = finding.drift([me, *alive]) + finding.skewed(alive)
    yield from problems
    if not problems and alive:
        yield Finding("drift", "ok", "all processes that are alive have the settings of this configuration")


def _leader(settings: Settings, held: dict[str, bool]) -> Finding:
    if not settings.inspector.timeout_period:
        return Finding("leases", "note", "nobody looks for overdue inspections", "set [inspector] timeout_period")
    if held.get("periodic/timeouts"):
        return Finding("leases", "ok", "somebody leads the search for overdue inspections")
    advice = "look again in a few seconds: one leads as soon as the lease of the one before has expired"
    return Finding("leases", "note", "nobody leads the search for overdue inspections at this moment", advice)


def _told(exc: Exception) -> str:
    """Return an error in a line; SQLAlchemy's own may quote anything, so of them only their kind is told."""
    return str(exc) if isinstance(exc, StoreUnavailableError) else type(exc).__name__
