"""Checks before a database is used: its URL and package, and a schema of this release.

Errors say what to do. Nothing here keeps a connection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import msgspec
from sqlalchemy import Engine

from ferroscope.config.errors import SetupError, extra
from ferroscope.config.options import DatabaseSettings, Settings
from ferroscope.contracts.errors import StoreUnavailableError
from ferroscope.db import location, migrate
from ferroscope.db.engine import build_engine
from ferroscope.db.url import DatabaseUrlError, parse_url
from ferroscope_client.core.database_fault import DatabaseFault
from ferroscope_client.core.values import many

# Time limit of one statement of a migration, in seconds.
_MIGRATION_SECONDS: Final = 6 * 3600.0


class SchemaError(SetupError):
    """The database's schema does not match this release."""


def check_url(settings: Settings) -> None:
    """Check ``[database] connection``, and the package that it needs, without connecting; ``SetupError``."""
    with explained():
        build_engine(settings.database).dispose()


def ensure_schema(settings: Settings, *, upgrade: bool, completes: bool = True) -> str:
    """Check the schema, or upgrade it; return its version.

    ``completes``: an upgrade also completes what a killed one has left. Without it, what is there may as well be the
    beginning of a backup that is being restored, and is not touched.

    ``SetupError``: the URL is invalid, or its file is mounted by itself. ``SchemaError``: the schema does not match.
    ``StoreUnavailableError``: the database cannot be used, with advice. ``OSError``: the default directory cannot be
    created.
    """
    database = settings.database
    if alone := location.mounted_alone(database):
        raise SetupError(*alone)
    if upgrade:  # a migration may take long
        location.make_directory(database)
        database = msgspec.structs.replace(database, statement_timeout=_MIGRATION_SECONDS)
    elif file := location.missing(database):
        raise SchemaError(f"the database file {file} does not exist", "run: ferroscope db upgrade")
    with explained():
        engine = build_engine(database)
    try:
        version = migrate.current(engine)
        there, missing = migrate.parts(engine) if version in (None, migrate.HEAD) else (set(), set())
        if there and missing and not (version is None and upgrade and completes):
            raise SchemaError(*_incomplete(missing, version))
        if version == migrate.HEAD:
            return version
        if not upgrade or is_foreign(version):
            raise SchemaError(*schema_problem(version, engine))
        migrate.upgrade(engine)
    except StoreUnavailableError as exc:
        if exc.failure.fault is not DatabaseFault.UNAVAILABLE:  # the message is complete
            exc.args = (f"{exc}; {exc.failure.fault.advice}",)
        raise
    finally:
        engine.dispose()
    return migrate.HEAD


def prepared(connection: str, ask_password: Callable[[], str]) -> str:
    """Return the URL, with a password if it lacks one, after the tables were created on a database server.

    SQLite's file is left to the service, whose user must own it. Raises what ``ensure_schema`` raises.
    """
    with explained():
        url = parse_url(connection)
    if url.get_backend_name() == "sqlite":
        return connection
    if url.username and url.password is None:
        url = url.set(password=ask_password() or None)
    complete = url.render_as_string(hide_password=False)
    ensure_schema(Settings(database=DatabaseSettings(connection=complete)), upgrade=True)
    return complete


def is_foreign(version: str | None) -> bool:
    """Whether this release cannot upgrade the schema: a newer one created it, or one before 1.0."""
    return version is not None and not (version.isdigit() and version <= migrate.HEAD)


def schema_problem(version: str | None, engine: Engine) -> tuple[str, str]:
    """Return what is wrong with a schema of another release, and what to do; ``StoreUnavailableError``."""
    if version is not None and version.startswith(migrate.COPYING):
        return (
            "the database holds an incomplete copy of another one",
            "repeat 'ferroscope db copy', which starts over; it may still be running",
        )
    if is_foreign(version):
        _, missing = migrate.parts(engine)
        owner = "a newer release"
        advice = "a downgrade is not supported: install that release, or restore the backup from before the upgrade"
        if missing:  # migrations only add, so a newer release has all parts of this one's schema
            owner = "a release before 1.0"
            advice = "its data cannot be upgraded: set [database] connection to an empty database, and enroll again"
        return f"the database has schema {version}, which belongs to {owner}; this release needs {migrate.HEAD}", advice
    where = "is empty" if version is None else f"has schema {version}"
    return f"the database {where}, this release needs {migrate.HEAD}", "run: ferroscope db upgrade"


def _incomplete(missing: set[str], version: str | None) -> tuple[str, str]:
    advice = "if a backup is being restored, wait until it ends; otherwise restore it again into an empty database"
    if version is None:
        advice += "; if an upgrade was killed, run: ferroscope db upgrade"
    return f"the database is incomplete: it lacks {many(len(missing), 'table or index', 'tables or indexes')}", advice


@contextmanager
def explained() -> Iterator[None]:
    try:
        yield
    except DatabaseUrlError as exc:
        raise SetupError(f"invalid [database] connection: {exc.summary}", exc.advice) from exc
    except ImportError as exc:
        raise SetupError(
            f"[database] connection needs the Python package {exc.name}, which is not installed",
            extra("mysql" if exc.name == "pymysql" else "postgresql"),
        ) from exc
