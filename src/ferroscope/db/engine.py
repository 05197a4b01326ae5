"""Engines: how to connect to each database, and with which limits.

The other differences between the databases are in ``errors``, ``spellings`` (SQL) and ``executor`` (BEGIN and COMMIT,
and how drivers send).
"""

from __future__ import annotations

import socket
from functools import partial
from typing import Any, Final

from sqlalchemy import URL, Engine, create_engine, event
from sqlalchemy.exc import NoSuchModuleError
from sqlalchemy.pool import NullPool

from ferroscope.config.options import DatabaseSettings
from ferroscope.db import replication, sqlite
from ferroscope.db.url import DatabaseUrlError, parse_url

NOTIFY_CHANNEL: Final = "ferroscope"

# Seconds until an idle connection is probed, between probes, and the number of probes; by libpq's names.
_KEEPALIVE: Final = {"keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3}
# Arguments of PostgreSQL's connections that a URL does not override: time limits are options of the service.
_RELIED_ON: Final = {"connect_timeout", "tcp_user_timeout", "client_encoding", "prepare_threshold"}
# PyMySQL's client flags: count the rows that matched, not those that changed; and accept several statements in one
# text (see ``mariadb.joined``).
_FOUND_ROWS: Final = 1 << 1
_MULTI_STATEMENTS: Final = 1 << 16
# A server that works has ended a statement at its time limit. Those who wait for a silent one are told soon after that.
_ANSWER_GRACE_SECONDS: Final = 0.5


def build_engine(settings: DatabaseSettings) -> Engine:
    """Return an engine with a timeout for every wait: connection pool, connect, statement and lock.

    ``DatabaseUrlError``; ``ImportError`` if the database's driver is not installed.

    Connections are in autocommit mode: ``executor`` sends BEGIN and COMMIT explicitly.
    """
    url, limit = parse_url(settings.connection), settings.statement_timeout
    family = url.get_backend_name()
    if family == "sqlite":
        arguments: dict[str, Any] = {
            "timeout": 0,
            "check_same_thread": False,
            "factory": partial(sqlite.TimedConnection, seconds=settings.statement_timeout),
        }
    elif family == "postgresql":
        url = url.set(drivername="postgresql+psycopg") if "+" not in url.drivername else url
        arguments = _with_options(url, _postgresql_arguments(settings))
    else:
        url = url.set(drivername="mysql+pymysql") if "+" not in url.drivername else url
        arguments = _mysql_arguments(settings)
    try:
        engine = create_engine(
            url,
            isolation_level="AUTOCOMMIT",
            connect_args=arguments,
            poolclass=NullPool,  # see ``unit_of_work.Connections``
            pool_reset_on_return=None,
            skip_autocommit_rollback=True,
        )
    except NoSuchModuleError:
        raise DatabaseUrlError(f"unknown driver in {url.drivername!r}", f"write {family}:// without a driver") from None
    if family == "sqlite":
        event.listen(engine, "do_connect", sqlite.create_private_file)
        event.listen(engine, "connect", partial(sqlite.prepare, settings.busy_timeout))
    elif family == "postgresql":
        from ferroscope.db import postgresql

        event.listen(engine, "connect", postgresql.prepare)
        event.listen(engine, "do_connect", partial(postgresql.connect, limit, limit + _ANSWER_GRACE_SECONDS))
    else:
        from ferroscope.db import mariadb

        replication.watch_galera(engine)
        event.listen(engine, "do_connect", mariadb.connect)
        event.listen(engine, "connect", partial(_keep_alive, settings.statement_timeout))
    return engine


def _keep_alive(statement_timeout: float, connection: Any, _record: Any) -> None:
    """Have the kernel do what libpq is told to by ``_KEEPALIVE``: PyMySQL leaves it to the host's two hours.

    A firewall or NAT that drops what is idle would let the next statement wait for its time limit.
    """
    sock = connection._sock
    if sock.family == socket.AF_UNIX:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        (socket.TCP_KEEPIDLE, _KEEPALIVE["keepalives_idle"]),
        (socket.TCP_KEEPINTVL, _KEEPALIVE["keepalives_interval"]),
        (socket.TCP_KEEPCNT, _KEEPALIVE["keepalives_count"]),
        (socket.TCP_USER_TIMEOUT, int(statement_timeout * 1000)),
    ):
        sock.setsockopt(socket.IPPROTO_TCP, option, value)


def _postgresql_arguments(settings: DatabaseSettings) -> dict[str, Any]:
    milliseconds = int(settings.statement_timeout * 1000)
    limits = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
    return {
        "connect_timeout": settings.connect_timeout,
        "options": " ".join(f"-c {name}={milliseconds}" for name in limits),
        **_KEEPALIVE,
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

    ``options`` are the settings of the session: the URL's, such as a search_path, and then ours, because the last value
    of a setting counts.
    """
    query = url.normalized_query
    options = " ".join([*query.get("options", ()), arguments["options"]])
    return {name: value for name, value in arguments.items() if name not in query or name in _RELIED_ON} | {
        "options": options
    }


def _mysql_arguments(settings: DatabaseSettings) -> dict[str, Any]:
    seconds = max(1, int(settings.statement_timeout))
    # Only MariaDB executes the text in /*M! */. A session that is idle within a transaction must not keep its locks:
    # its host may have failed, or its process may be stopped.
    session = (
        "SET SESSION time_zone='+00:00',"
        f" innodb_lock_wait_timeout={seconds},"
        f" /*M!100301 max_statement_time={seconds}, idle_transaction_timeout={seconds}, */"
        " sql_mode='STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION';"
        " SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"
    )
    return {
        "charset": "utf8mb4",
        "client_flag": _FOUND_ROWS | _MULTI_STATEMENTS,
        "connect_timeout": settings.connect_timeout,
        "read_timeout": seconds + _ANSWER_GRACE_SECONDS,
        "write_timeout": seconds + _ANSWER_GRACE_SECONDS,
        "init_command": session,
    }
