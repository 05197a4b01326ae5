"""All checks of ``ferroscope doctor`` in order, and those of the database and the members.

A check changes nothing that matters, ends within a timeout, and shows no secret. If an earlier failure makes a check
impossible, it is skipped; the earlier finding says why.
"""

from __future__ import annotations

import os
import socket
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec
from sqlalchemy.exc import SQLAlchemyError

from ferroscope.config.errors import SetupError
from ferroscope.config.options import Settings
from ferroscope.contracts.errors import LeaseHeldError, LeaseLostError, StoreError, StoreUnavailableError
from ferroscope.core import finding
from ferroscope.core.model import Member
from ferroscope.core.problems import Facts, list_problems
from ferroscope.db import Store, Transaction, location, migrate
from ferroscope.db.prepare import schema_problem
from ferroscope.db.rekey import census
from ferroscope.doctor import host
from ferroscope.doctor.database_server import cluster, durability
from ferroscope.doctor.media import examine_image
from ferroscope.runtime.backend import Backend, open_backend
from ferroscope.runtime.system import SystemClock
from ferroscope.secrets.keys import KeyRing
from ferroscope.telemetry.key_check import missing_keys
from ferroscope.telemetry.members import about
from ferroscope_client.core.database_fault import DATABASE_CODES, DatabaseFailure
from ferroscope_client.core.finding import Finding
from ferroscope_client.core.values import many
from ferroscope_client.installed import PluginError, load_installed

_LEASE: Final = "ferroscope/doctor"

# What a package adds to the checks, with an entry point in the group ``ferroscope.checks``.
AddChecks = Callable[[Settings], Iterator[Finding]]


def examine(settings: Settings) -> Iterator[Finding]:
    """Yield the findings as the checks run."""
    served = False
    for host_finding in host.examine(settings):
        served = served or host_finding.code == host.SERVED
        yield host_finding
    yield from examine_image(settings, SystemClock())
    yield from _added(settings)
    backend = None
    if old := location.left_behind(settings.database):
        summary = f"{old} is the database of an earlier release and is not used"
        advice = f"to keep using it: --database sqlite:///{old}, or stop the service and move the file"
        yield Finding("database-left-behind", "note", summary, advice)
    try:
        missing = _missing_file(settings, served=served)
        if missing is not None:
            yield missing
            return
        yield from _readable_file(settings)
        backend = open_backend(settings, clock=SystemClock(), stop=threading.Event(), listen=False)
        yield from _database(settings, backend)
    except SetupError as exc:
        yield Finding("database", "wrong", exc.summary, exc.advice or "correct [database] connection")
    except SQLAlchemyError as exc:
        summary = f"invalid [database] connection: {_describe(exc)}"
        yield Finding("database", "wrong", summary, "correct [database] connection")
    finally:
        if backend is not None:
            backend.close()


def _added(settings: Settings) -> Iterator[Finding]:
    """Run the checks that packages add with entry points in the group ``ferroscope.checks``."""
    try:
        checks: Mapping[str, AddChecks] = load_installed("ferroscope.checks")
    except PluginError as exc:
        yield Finding("checks", "wrong", str(exc), exc.advice)
        return
    for examine_part in checks.values():
        yield from examine_part(settings)


def _missing_file(settings: Settings, *, served: bool) -> Finding | None:
    """Check for a missing SQLite file: it may not exist yet, and a check must not create it."""
    file = location.missing(settings.database)
    if file is None:
        return None
    directory = file.absolute().parent
    if not os.access(directory, os.W_OK):
        advice = "create the directory, or set [database] connection to another one"
        return Finding("database", "wrong", f"the directory {directory} does not exist or is not writable", advice)
    if served:
        summary = f"an api is running on this host, but the file {file} does not exist"
        advice = (
            "if this is the configuration of that api, its database was deleted and everything that it writes is "
            "lost: stop it"
        )
        return Finding("database", "wrong", summary, advice)
    advice = "'ferroscope all' creates it when it starts; or run: ferroscope db upgrade"
    return Finding("database", "note", f"the file {file} does not exist yet", advice)


def _readable_file(settings: Settings) -> Iterator[Finding]:
    """Check the mode of a SQLite file, which contains the passwords of BMCs, and its file system."""
    if alone := location.mounted_alone(settings.database):
        yield Finding("database-file", "wrong", *alone)
    path = location.file_of(settings.database)
    if path is None or not path.is_file() or not path.stat().st_mode & 0o077:
        return
    summary = f"the file {path} contains passwords of BMCs and is accessible to users other than its owner"
    yield Finding("database-file", "note", summary, f"unless that is intended: chmod go= {path}*")


def _database(settings: Settings, backend: Backend) -> Iterator[Finding]:
    where = location.place(settings.database)
    try:
        kind, schema, needed = backend.describe()
    except StoreUnavailableError as exc:
        yield Finding("database", "wrong", f"cannot connect to {where}: {_describe(exc)}", exc.failure.fault.advice)
        return
    yield Finding("database", "ok", f"connected to {where} ({kind})")
    if schema != needed:
        yield Finding("schema", "wrong", *schema_problem(schema, backend.engine))
        return
    yield Finding("schema", "ok", f"the schema is up to date ({migrate.HEAD})")
    yield from _guard("durability", lambda: list(durability(backend)))
    yield from _guard("cluster", lambda: list(cluster(settings, backend)))
    yield from _guard("clock", lambda: [_clock(backend)])
    failure = None
    try:
        yield _writing(backend)
    except StoreError as exc:
        failure = exc.failure
        yield Finding("writing", "wrong", f"database error: {_describe(exc)}", failure.fault.advice)
    yield from _guard("secrets", lambda: list(secret_findings(backend.store, backend.keys)))
    yield from _guard("members", lambda: list(_members(settings, backend, failure)))


def _guard(name: str, check: Callable[[], list[Finding]]) -> list[Finding]:
    """Return the findings of a check, or a finding if the database fails during it."""
    try:
        return check()
    except StoreUnavailableError as exc:
        return [Finding(name, "wrong", f"database error: {_describe(exc)}", exc.failure.fault.advice)]


def _clock(backend: Backend) -> Finding:
    clock = SystemClock()
    skew = min((backend.store.read(lambda tx: clock.time() - tx.now) for _ in range(3)), key=abs)
    if finding.is_skewed(skew):
        return finding.skew_of(socket.gethostname(), skew)
    return Finding("clock", "ok", f"this host's clock is within {max(abs(skew), 0.01):.2f} s of the database's")


def _writing(backend: Backend) -> Finding:
    holder = f"doctor-{uuid.uuid4()}"
    try:
        claim = backend.store.write(lambda tx: tx.leases.acquire(_LEASE, holder, 5.0))
        backend.store.write(lambda tx: tx.leases.forget(claim.lease, held=True))
    except (LeaseHeldError, LeaseLostError):
        return Finding("writing", "ok", "write check skipped: another doctor is running")
    return Finding("writing", "ok", "the database is writable")


def _members(settings: Settings, backend: Backend, failure: DatabaseFailure | None) -> Iterator[Finding]:
    """Yield the problems of the service, treating this configuration as a member's.

    ``failure``: why the database cannot be written. It is shown already, and its consequences are left out.
    """
    report = about(settings, [], migrate.HEAD, skew=None, loops={})

    def read(tx: Transaction) -> tuple[Facts, list[Member]]:
        me = Member(
            id="", host=socket.gethostname(), pid=0, role="this configuration", expires_at=tx.now + 1, detail=report
        )
        members = list(tx.members.list())
        facts = Facts(
            now=tx.now,
            failure=failure,
            members=[*members, me],
            leases=tx.leases.list(),
            backlog=tx.statistics.backlog(),
            clock_steps=tx.clock_steps.list(),
        )
        return facts, [member for member in members if member.is_alive(tx.now)]

    facts, alive = backend.store.read(read)
    problems = [problem for problem in list_problems(facts) if problem.code not in DATABASE_CODES.values()]
    for problem in problems:
        # The service may not have been started yet.
        yield msgspec.structs.replace(problem, verdict="note") if problem.code == "no-worker" else problem
    if failure is None and (working := sum(member.works for member in alive)):
        yield Finding("members", "ok", f"members alive: {len(alive)}; of these, workers: {working}")
        yield _leader(settings, {lease.name: lease.held for lease in facts.leases})
    if alive and not {"settings-differ", "releases-differ", "clock-skew"} & {problem.code for problem in problems}:
        yield Finding("drift", "ok", "all members use this configuration")


def _leader(settings: Settings, held: dict[str, bool]) -> Finding:
    if not settings.inspector.timeout_period:
        summary = "inspections never time out: [inspector] timeout_period is 0"
        return Finding("leases", "note", summary, "set [inspector] timeout_period")
    if held.get("periodic/timeouts"):
        return Finding("leases", "ok", "the lease periodic/timeouts is held")
    summary = "the lease periodic/timeouts is not held: inspections do not time out at the moment"
    return Finding("leases", "note", summary, "run the check again in a few seconds, when a worker has acquired it")


def _describe(exc: Exception) -> str:
    """Return an error in one line; for SQLAlchemy's errors only the type, because they may quote secrets."""
    return str(exc) if isinstance(exc, StoreError) else type(exc).__name__


def secret_findings(store: Store, keys: KeyRing) -> Iterator[Finding]:
    """Yield how secrets of nodes are stored, and which keys are missing."""
    if missing := missing_keys(store, keys):
        yield missing
    stored = census(store)
    total = stored.plain + sum(stored.by_key.values())
    if not keys.keys:
        if stored.plain:
            summary = f"stored in plain text: {many(stored.plain, 'secret')} of nodes, such as BMC passwords"
            advice = "to encrypt them, see: ferroscope docs encrypt-bmc-passwords"
            yield Finding("secrets-plain", "note", summary, advice)
    elif keys.active is None:
        summary = "the first line of [secrets] key_file is 'identity': new secrets are stored in plain text"
        yield Finding("secrets-plain", "note", summary, "unless that is intended, move a key to the first line")
    elif rest := total - stored.by_key.get(keys.active.id, 0):
        summary = f"not encrypted with the first key of [secrets] key_file: {rest} of {many(total, 'secret')} of nodes"
        yield Finding("secrets-plain", "note", summary, "run: ferroscope db rekey")
    else:
        yield Finding("secrets", "ok", f"encrypted with the key {keys.active.id}: all {many(total, 'secret')} of nodes")
