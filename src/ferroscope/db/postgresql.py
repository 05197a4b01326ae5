"""PostgreSQL: sessions that can serve us, with a time limit for each answer, and many statements in one round trip.

What would fail later, or be wrong without a word, is refused while connecting; the message says what to do.

Statements are sent in libpq's pipeline mode. psycopg's API for it sends them separately and adapts each parameter by
its Python type, which takes 0.3 ms instead of 0.06 ms for ten statements. So libpq is called directly, through
psycopg's wrapper; parameters are sent as text, and get their types from the statement. The answers are read by the
thread that waits for them, without psycopg's generators, of which there would be one for each statement.
"""

from __future__ import annotations

import math
import re
import select
import time
from collections.abc import Sequence
from functools import cache, lru_cache, partial
from typing import Any, Final

import psycopg
from psycopg import errors, generators
from psycopg.adapt import Transformer
from psycopg.pq import ConnStatus, DiagnosticField, ExecStatus, TransactionStatus
from psycopg.types.string import StrDumper, StrDumperUnknown, StrDumperVarchar
from sqlalchemy import Connection

from ferroscope.db.executor import Command, CommandError, Result
from ferroscope.remote.resolver import UnresolvedError, resolve

# A connection's: the server has given up waiting for its synchronous standby.
UNREPLICATED: Final = "unreplicated"
# The class of the warning that a commit is not on the synchronous standby; its text is translated. No statement of
# ours causes other warnings.
_NOT_REPLICATED: Final = {"01000", "57P01"}
_POOLER: Final = (
    "its sessions do not keep our time limits, as behind a connection pooler such as PgBouncer; "
    "set [database] connection to PostgreSQL itself: each process pools its own connections"
)
# What a pooler says to settings that it does not know; PostgreSQL knows all of ours.
_UNSUPPORTED: Final = "unsupported startup parameter"
_LIMIT: Final = "SELECT EXTRACT(EPOCH FROM CAST(current_setting('statement_timeout') AS interval))"
# A statement is prepared when it is executed this often on a connection (psycopg's default), up to a maximum number.
_PREPARED_AFTER: Final = 5
_MOST_PREPARED: Final = 200
_PLACEHOLDER: Final = re.compile(r"%\((\w+)\)s|%%")
_DONE: Final = frozenset({int(ExecStatus.COMMAND_OK), int(ExecStatus.TUPLES_OK)})
_FAILED, _SYNCED = int(ExecStatus.FATAL_ERROR), int(ExecStatus.PIPELINE_SYNC)


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

    class TimedConnection(psycopg.Connection[Any]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self.answer_timeout = answer_timeout
            self._socket = select.poll()
            self._socket.register(self.pgconn.socket, select.POLLIN)

        def wait_until_readable(self, deadline: float) -> None:
            """Return when the server has sent something; ``OperationalError`` at this time of the monotonic clock."""
            left = deadline - time.monotonic()
            if left <= 0 or not self._socket.poll(left * 1000):
                self.pgconn.finish()  # a late answer must not be read as the next statement's
                raise psycopg.OperationalError(f"the server has not answered for {answer_timeout:g} s")

        def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
            try:
                return super().wait(gen, interval, answer_timeout if timeout is None else timeout)
            except psycopg.OperationalError:
                if timeout is None and self.pgconn.transaction_status == TransactionStatus.ACTIVE:
                    self.pgconn.finish()  # a late answer must not be read as the next statement's
                raise

    return TimedConnection


def prepare(connection: Any, record: Any) -> None:
    """Replace NUL, which PostgreSQL cannot store in text, with U+FFFD; ramdisks do send it.

    Also note when the server gives up waiting for its synchronous standby: see ``pipelined``.
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


def pipelined(connection: Connection, commands: Sequence[Command]) -> list[Result]:
    """Send all statements, with one sync at the end."""
    driver: Any = connection.connection.dbapi_connection
    info = connection.info
    prepared: dict[str, _Prepared] = info.setdefault("prepared", {})
    pgconn = driver.pgconn
    results, prepared_now, preparing = list[Result](), list[_Prepared](), list[_Prepared | None]()
    sent = 0
    info.pop(UNREPLICATED, None)
    try:
        pgconn.enter_pipeline_mode()
        for command in commands:
            sent += 1  # libpq may send it at once
            preparing.append(_send(pgconn, prepared, command))
        prepared_now = [name for name in preparing if name is not None]
        try:
            pgconn.pipeline_sync()
        except psycopg.OperationalError as exc:
            # psycopg says that there is no pipeline, whatever the reason, such as a server that has closed it.
            raise psycopg.OperationalError(pgconn.get_error_message().strip() or str(exc)) from None
        result_lists, lost = _answers(driver, len(commands) + len(prepared_now))
        answers = iter(result_lists)
        for command, name in zip(commands, preparing, strict=True):
            if name is not None:
                _result(driver, info, next(answers, lost), answers=False)
                prepared_now.remove(name)
            results.append(_result(driver, info, next(answers, lost), answers=command.answers))
        if UNREPLICATED in info:
            # Somebody has cancelled the wait for the synchronous standby. The server has committed, and says so, but a
            # fail-over would discard it: it must not be acknowledged.
            raise psycopg.OperationalError("the synchronous standby has not confirmed the commit")
    except psycopg.Error as exc:
        for name in prepared_now:  # skipped by the server after the error
            name.ready = False
        place = min(len(results), len(commands) - 1)
        failure = CommandError(place, exc, results, sent=place + 1 if exc.sqlstate else sent)
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


def _answers(driver: Any, number: int) -> tuple[list[Any], psycopg.OperationalError | None]:
    """Return the answers to so many statements, and why the rest is missing: what was answered before counts."""
    pgconn, result_lists = driver.pgconn, list[Any]()
    deadline = time.monotonic() + driver.answer_timeout
    try:
        if pgconn.flush():  # more than the socket takes at once
            driver.wait(generators.send(pgconn))
        for _ in range(number):
            result_lists.append(_answer(driver, pgconn, deadline))
        ended = _answer(driver, pgconn, deadline)  # the sync's
        severity = ended[0].error_field(DiagnosticField.SEVERITY_NONLOCALIZED) if ended else None
        if severity == b"ERROR":  # of NOTIFY, whose transaction ends here; COMMIT came before it
            _answer(driver, pgconn, deadline)
    except psycopg.OperationalError as exc:
        return result_lists, exc
    return result_lists, None


def _answer(driver: Any, pgconn: Any, deadline: float) -> list[Any]:
    """Return the results of the next statement."""
    results = list[Any]()
    while True:
        try:
            while pgconn.is_busy():
                driver.wait_until_readable(deadline)
                pgconn.consume_input()
        except psycopg.OperationalError:
            if any(result.status == _FAILED for result in results):  # it says why the session has ended
                return results
            raise
        result = pgconn.get_result()
        if result is None:
            return results
        results.append(result)
        if result.status == _SYNCED:  # the only one that no None follows
            return results


class _Prepared:
    """A statement on one connection: how often it was executed, and whether the server has prepared it."""

    __slots__ = ("name", "ready", "used")

    def __init__(self, number: int) -> None:
        self.name = f"f{number}".encode()
        self.used = 0
        self.ready = False


def _send(pgconn: Any, prepared: dict[str, _Prepared], command: Command) -> _Prepared | None:
    """Add the statement to the pipeline; return its entry if a PREPARE was added before it."""
    text, values = command.text, command.values
    if values is None:
        pgconn.send_query_params(text.encode(), None)
        return None
    numbered, names = _number_parameters(text)
    texts, formats = list[bytes | None](), list[bool]()
    for name in names:
        value = values[name]
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
    prepared_statement = prepared.get(text)
    if prepared_statement is None:
        if len(prepared) >= _MOST_PREPARED:
            pgconn.send_query_params(numbered, texts, param_formats=formats)
            return None
        prepared_statement = prepared[text] = _Prepared(len(prepared))
    prepared_statement.used += 1
    if prepared_statement.ready or prepared_statement.used < _PREPARED_AFTER:
        new = None
    else:
        pgconn.send_prepare(prepared_statement.name, numbered)
        new, prepared_statement.ready = prepared_statement, True
    if prepared_statement.ready:
        pgconn.send_query_prepared(prepared_statement.name, texts, param_formats=formats)
    else:
        pgconn.send_query_params(numbered, texts, param_formats=formats)
    return new


@lru_cache(maxsize=4096)
def _number_parameters(text: str) -> tuple[bytes, tuple[str, ...]]:
    """Return the text with ``$1`` instead of ``%(name)s``, and the names in the order of their numbers."""
    names: dict[str, int] = {}

    def number(parameter: re.Match[str]) -> str:
        name = parameter[1]
        return "%" if name is None else f"${names.setdefault(name, len(names) + 1)}"

    return _PLACEHOLDER.sub(number, text).encode(), tuple(names)


def _result(driver: Any, info: Any, received: Any, *, answers: bool) -> Result:
    """Return the result of a statement; raise psycopg's error if it failed, or was ``found`` instead of an answer."""
    if isinstance(received, Exception):
        raise received
    result = received[0]
    if result.status not in _DONE:
        raise errors.error_from_result(result)
    count = result.command_tuples or 0
    if not answers:
        return (), count
    transformer = info.get("transformer")
    if transformer is None:
        transformer = info["transformer"] = Transformer(driver)
    transformer.set_pgresult(result)
    return transformer.load_rows(0, result.ntuples, tuple), count
