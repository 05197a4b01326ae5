"""PostgreSQL: sessions that can serve us, with a time limit for each answer, and many statements in one round trip.

A server that would fail later, or return wrong results without an error, is refused while connecting; the message says
what to do.

Statements are sent in libpq's pipeline mode. psycopg's API for it sends them separately and adapts each parameter by
its Python type, which takes 0.3 ms instead of 0.06 ms for ten statements. So libpq is called directly, through
psycopg's wrapper; parameters are sent as text, and get their types from the statement. The answers are read by the
thread that waits for them, without psycopg's generators, of which there would be one for each statement.
"""

from __future__ import annotations

import math
import select
import time
from collections.abc import Collection, Iterator, Sequence
from functools import cache, partial
from typing import Any, Final

import msgspec
import psycopg
from psycopg import errors, generators
from psycopg.adapt import Transformer
from psycopg.pq import ConnStatus, ExecStatus, TransactionStatus
from psycopg.types.string import StrDumper, StrDumperUnknown, StrDumperVarchar
from sqlalchemy import URL, Connection, Engine, event

from ferroscope.config.options import DatabaseSettings
from ferroscope.db.executor import (
    ANSWER_GRACE_SECONDS,
    COMMIT,
    KEEPALIVE,
    NOW,
    CommandError,
    Result,
    SqlCommand,
    begins,
)
from ferroscope.remote.resolver import UnresolvedError, resolve

NOTIFY_CHANNEL: Final = "ferroscope"
# Arguments of connections that a URL does not override: time limits are options of the service.
_RELIED_ON: Final = {"connect_timeout", "tcp_user_timeout", "client_encoding", "prepare_threshold"}
# A connection's: the server has given up waiting for its synchronous standby.
UNREPLICATED: Final = "unreplicated"
# The class of the warning that a commit is not on the synchronous standby; its text is translated. The
# service's statements cause no other warnings.
_NOT_REPLICATED: Final = {"01000", "57P01"}
_POOLER: Final = (
    "its sessions do not keep our time limits, as behind a connection pooler such as PgBouncer; "
    "set [database] connection to PostgreSQL itself: each process pools its own connections"
)
# A pooler's answer to settings that it does not know; PostgreSQL knows all of them.
_UNSUPPORTED: Final = "unsupported startup parameter"
_LIMIT: Final = "SELECT EXTRACT(EPOCH FROM CAST(current_setting('statement_timeout') AS interval))"
# A statement is prepared when it is executed this often on a connection (psycopg's default), up to a maximum number.
_PREPARED_AFTER: Final = 5
_MOST_PREPARED: Final = 200
_DONE: Final = frozenset({int(ExecStatus.COMMAND_OK), int(ExecStatus.TUPLES_OK)})
_FAILED, _SYNCED = int(ExecStatus.FATAL_ERROR), int(ExecStatus.PIPELINE_SYNC)


def connect_arguments(url: URL, settings: DatabaseSettings) -> tuple[URL, dict[str, Any]]:
    """Return the URL with its driver, and the arguments of a connection."""
    url = url if "+" in url.drivername else url.set(drivername="postgresql+psycopg")
    return url, _with_options(url, session_arguments(settings))


def session_arguments(settings: DatabaseSettings) -> dict[str, Any]:
    """Return the arguments of a connection, with a time limit for each wait."""
    milliseconds = int(settings.statement_timeout * 1000)
    limits = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
    return {
        "connect_timeout": settings.connect_timeout,
        "options": " ".join(f"-c {name}={milliseconds}" for name in limits),
        **KEEPALIVE,
        "tcp_user_timeout": milliseconds,
        "application_name": "ferroscope",
        "target_session_attrs": "primary",  # of the servers or addresses that a name stands for
        "client_encoding": "utf8",  # the server's default is the encoding of the database, or an administrator's
        # psycopg must not prepare statements itself: on rollback it would deallocate all prepared statements of the
        # session, including those of ``executor``.
        "prepare_threshold": None,
    }


def _with_options(url: URL, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments without those that the URL has, except what the service relies on.

    ``options`` are the settings of the session: the URL's, such as a search_path, and then the service's, because the
    last value of a setting counts.
    """
    query = url.normalized_query
    options = " ".join([*query.get("options", ()), arguments["options"]])
    return {name: value for name, value in arguments.items() if name not in query or name in _RELIED_ON} | {
        "options": options
    }


def listen(engine: Engine, settings: DatabaseSettings) -> None:
    """Prepare each new connection of the engine."""
    limit = settings.statement_timeout
    event.listen(engine, "connect", prepare)
    event.listen(engine, "do_connect", partial(connect, limit, limit + ANSWER_GRACE_SECONDS))


def connect(limit: float, answer_limit: float, _dialect: Any, _record: Any, _arguments: Any, parameters: Any) -> Any:
    """Return a connection whose statements have ``limit`` seconds on the server, and ``answer_limit`` to be answered.

    ``psycopg.OperationalError``.
    """
    try:
        parameters |= _with_addresses(parameters)
        connection = _connection_type(answer_limit).connect(**parameters, autocommit=True)
    except psycopg.OperationalError as exc:
        if _UNSUPPORTED in str(exc):
            raise psycopg.OperationalError(_POOLER) from exc
        raise
    try:
        refused = _refusal(connection, limit)
    except BaseException:
        connection.close()
        raise
    if refused:
        connection.close()
        raise psycopg.OperationalError(refused)
    return connection


def _with_addresses(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters with an address for each server, and the time that is left after looking them up.

    psycopg looks names up before its time limit begins. ``OperationalError`` if no name has an address.
    """
    hosts = str(parameters.get("host") or "").split(",")
    if "hostaddr" in parameters or not all(hosts) or any(host.startswith(("/", "@")) for host in hosts):
        return {}
    deadline = time.monotonic() + parameters["connect_timeout"]
    ports = str(parameters.get("port") or "").split(",")
    servers: list[tuple[str, str, str]] = []
    failure = ""
    for number, (host, port) in enumerate(zip(hosts, ports * len(hosts) if len(ports) == 1 else ports, strict=True)):
        try:
            addresses = resolve(host, (deadline - time.monotonic()) / (len(hosts) - number))
        except UnresolvedError as exc:  # another server of the list may be up
            failure = str(exc)
            continue
        servers += [(host, address, port) for address in addresses]
    if not servers:
        raise psycopg.OperationalError(failure)
    left = {"connect_timeout": max(1, math.ceil(deadline - time.monotonic()))}
    lists = zip(("host", "hostaddr", "port"), zip(*servers, strict=True), strict=True)
    return left | {name: ",".join(values) for name, values in lists if any(values)}


def _refusal(connection: Any, limit: float) -> str:
    """Return why this server cannot be used, or ""."""
    if connection.pgconn.parameter_status(b"in_hot_standby") == b"on":
        return "the server is a standby: it has not been promoted"
    encoding = (connection.pgconn.parameter_status(b"server_encoding") or b"UTF8").decode()
    if encoding != "UTF8":
        return (
            f"the database has the encoding {encoding}, which cannot store every text; "
            "create it anew: CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0"
        )
    # Settings of a session are lost on a pooler's way, and so are prepared statements and LISTEN.
    (seconds,) = connection.execute(_LIMIT).fetchone()
    return "" if abs(float(seconds) - limit) < 0.001 else _POOLER


@cache
def _connection_type(answer_timeout: float) -> Any:
    """Return a subclass of psycopg's connection that waits at most ``answer_timeout`` seconds for each answer.

    The server's own timeouts work only while its processes run, and TCP's only if its kernel is silent too. A server
    whose processes hang (failed disk, SIGSTOP) is detected only by this timeout.
    """

    class PostgresqlConnection(psycopg.Connection[Any]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self.answer_timeout = answer_timeout
            self.socket = select.poll()
            self.socket.register(self.pgconn.socket, select.POLLIN)

        def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
            try:
                return super().wait(gen, interval, answer_timeout if timeout is None else timeout)
            except psycopg.OperationalError:
                if timeout is None and self.pgconn.transaction_status == TransactionStatus.ACTIVE:
                    self.pgconn.finish()  # a late answer must not be read as the next statement's
                raise

    return PostgresqlConnection


def prepare(connection: Any, record: Any) -> None:
    """Replace NUL, which PostgreSQL cannot store in text, with U+FFFD; ramdisks do send it.

    Also note when the server gives up waiting for its synchronous standby: see ``send``.
    """
    connection.add_notice_handler(partial(_on_notice, record.info))
    for dumper in (StrDumperVarchar, StrDumper, StrDumperUnknown):
        connection.adapters.register_dumper(str, _without_nul(dumper))


def _on_notice(info: dict[str, Any], notice: Any) -> None:
    if notice.severity_nonlocalized == "WARNING" and notice.sqlstate in _NOT_REPLICATED:
        info[UNREPLICATED] = True


@cache
def _without_nul(dumper: Any) -> Any:
    def dump(self: Any, text: str) -> Any:
        return dumper.dump(self, text.replace("\0", "\ufffd") if "\0" in text else text)

    return type(dumper.__name__, (dumper,), {"dump": dump})


_NOW: Final = f"SELECT {NOW['postgresql']}"
# (write, durable) -> the statements. All statements of a read see the same snapshot.
_OPENING: Final = {
    (True, True): begins("BEGIN ISOLATION LEVEL READ COMMITTED", _NOW),
    (True, False): begins("BEGIN ISOLATION LEVEL READ COMMITTED", "SET LOCAL synchronous_commit TO OFF", _NOW),
    (False, False): begins("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", _NOW),
}


def opening(write: bool, durable: bool, snapshot: bool, /) -> Sequence[SqlCommand]:
    """Return the statements that begin a transaction, or the last of them for a read without ``snapshot``."""
    statements = _OPENING[write, durable]
    return statements if write or snapshot else statements[-1:]


def closing(woken: Collection[str], /) -> Sequence[SqlCommand]:
    """Return COMMIT, and after it a NOTIFY for each message in ``woken``.

    A transaction that has notified holds a lock of the whole server until its commit is on the disk, so such commits
    would wait for each other. After COMMIT it holds that lock for a moment. If a message is lost, polls find the news.
    """
    # The text of a NOTIFY contains its message, so it differs each time and is not worth preparing.
    notes = [SqlCommand(f"NOTIFY {NOTIFY_CHANNEL}, '{_quote(text)}'", None, answers=False) for text in sorted(woken)]
    return (COMMIT, *notes)


def _quote(text: str) -> str:
    return text.replace("'", "''")


def send(connection: Connection, commands: Sequence[SqlCommand]) -> list[Result]:
    """Send all statements, with one sync at the end."""
    driver: Any = connection.connection.dbapi_connection
    info = connection.info
    pgconn = driver.pgconn
    results, preparing = list[Result](), list[_Prepared | None]()
    info.pop(UNREPLICATED, None)
    try:
        pgconn.enter_pipeline_mode()
        _add(pgconn, info.setdefault("prepared", {}), commands, preparing)
        try:
            pgconn.pipeline_sync()
        except psycopg.OperationalError as exc:
            # psycopg says that there is no pipeline, even if the server has closed the connection.
            raise psycopg.OperationalError(pgconn.get_error_message().strip() or str(exc)) from None
        _read(driver, info, commands, preparing, _answers(driver), results)
        if UNREPLICATED in info:
            # The wait for the synchronous standby was cancelled. The server has committed, and says so, but a fail-over
            # would discard the commit: it must not be acknowledged.
            raise psycopg.OperationalError("the synchronous standby has not confirmed the commit")
    except psycopg.Error as exc:
        for statement in preparing:
            if statement is not None:  # skipped by the server after the error
                statement.ready = False
        place = min(len(results), len(commands) - 1)
        # What is in ``preparing`` was added to the pipeline, and libpq may have sent it at once.
        failure = CommandError(place, exc, results, sent=place + 1 if exc.sqlstate else len(preparing))
        failure.cause.unreplicated = info.pop(UNREPLICATED, False)
        raise failure from exc
    finally:
        if pgconn.status == ConnStatus.OK:
            try:
                pgconn.exit_pipeline_mode()
            except psycopg.OperationalError:
                # The sync was answered with FATAL: the server ends this connection. What it answered before is valid:
                # a COMMIT that it has confirmed must not be reported as failed.
                driver.close()
    return results


class _Prepared(msgspec.Struct, eq=False):
    """A statement on one connection: how often it was executed, and whether the server has prepared it."""

    name: bytes
    used: int = 0
    ready: bool = False


def _add(
    pgconn: Any, prepared: dict[str, _Prepared], commands: Sequence[SqlCommand], preparing: list[_Prepared | None]
) -> None:
    """Add the statements to the pipeline, and to ``preparing`` those before which a PREPARE was added, or None."""
    for command in commands:
        text = command.text.encode()
        preparing.append(None)
        if command.values is None:
            pgconn.send_query_params(text, None)
            continue
        texts, formats = list[bytes | None](), list[bool]()
        for value in command.values:
            formats.append(isinstance(value, bytes))  # format 1 is binary: bytes are sent unchanged
            if isinstance(value, str):
                # PostgreSQL cannot store NUL, which ramdisks do send: it becomes U+FFFD.
                texts.append((value.replace("\0", "\ufffd") if "\0" in value else value).encode())
            elif isinstance(value, bool):
                texts.append(b"t" if value else b"f")
            elif value is None or isinstance(value, bytes):
                texts.append(value)
            else:  # a number
                texts.append(repr(value).encode())
        statement = prepared.get(command.text)
        if statement is None and len(prepared) < _MOST_PREPARED:
            statement = prepared[command.text] = _Prepared(b"f%d" % len(prepared))
        if statement is not None:
            statement.used += 1
            if not statement.ready and statement.used >= _PREPARED_AFTER:
                pgconn.send_prepare(statement.name, text)
                preparing[-1], statement.ready = statement, True
        if statement is not None and statement.ready:
            pgconn.send_query_prepared(statement.name, texts, param_formats=formats)
        else:
            pgconn.send_query_params(text, texts, param_formats=formats)


def _read(
    driver: Any,
    info: dict[str, Any],
    commands: Sequence[SqlCommand],
    preparing: list[_Prepared | None],
    answers: Iterator[Any],
    results: list[Result],
) -> None:
    """Add the result of each statement; raise psycopg's error of the first one that failed or was not answered."""
    transformer = info.get("transformer") or info.setdefault("transformer", Transformer(driver))
    for place, command in enumerate(commands):
        for is_answer in (False, True) if preparing[place] is not None else (True,):
            received = next(answers)
            if isinstance(received, Exception):
                raise received
            result = received[0]
            if result.status not in _DONE:
                raise errors.error_from_result(result)
            if not is_answer:  # it was prepared
                preparing[place] = None
        rows: Sequence[Any] = ()
        if command.answers:
            transformer.set_pgresult(result)
            rows = transformer.load_rows(0, result.ntuples, tuple)
        results.append((rows, result.command_tuples or 0))


def _answers(driver: Any) -> Iterator[Any]:
    """Return the results of each statement, and then why the rest is missing: what was answered before counts."""
    pgconn, answers, results = driver.pgconn, list[Any](), list[Any]()
    deadline = time.monotonic() + driver.answer_timeout
    try:
        if pgconn.flush():  # more than the socket takes at once
            driver.wait(generators.send(pgconn))
        while True:
            while pgconn.is_busy():
                left = deadline - time.monotonic()
                if left <= 0 or not driver.socket.poll(left * 1000):
                    pgconn.finish()  # a late answer must not be read as the next statement's
                    late = f"the server has not answered for {driver.answer_timeout:g} s"
                    raise psycopg.OperationalError(late)  # noqa: TRY301  # as if libpq had raised it
                pgconn.consume_input()
            result = pgconn.get_result()
            if result is None:
                answers.append(results)
                results = []
            elif result.status == _SYNCED:
                return iter(answers)
            else:
                results.append(result)
    except psycopg.OperationalError as exc:
        if any(result.status == _FAILED for result in results):  # it says why the session has ended
            answers.append(results)
        return iter([*answers, exc])
