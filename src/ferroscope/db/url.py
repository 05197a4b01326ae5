"""``[database] connection``: the URL, checked before anything connects, also one with several PostgreSQL servers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

_FORMS: Final = "sqlite:///FILE, postgresql://USER:PASSWORD@HOST/NAME or mysql://USER:PASSWORD@HOST/NAME"
_FAMILIES: Final = ("sqlite", "postgresql", "mysql", "mariadb")
# libpq's form of several servers: HOST:PORT,HOST:PORT between the password and the name of the database.
_SEVERAL: Final = re.compile(r"(?P<head>postgresql[^:]*://(?:[^@/]*@)?)(?P<hosts>[^@/?]*,[^@/?]*)(?P<tail>/[^?]*|)")


class DatabaseUrlError(ValueError):
    """``[database] connection`` is invalid. The message says why and what to write, without quoting the URL."""

    def __init__(self, summary: str, advice: str) -> None:
        super().__init__(f"{summary}; {advice}")
        self.summary = summary
        self.advice = advice


def parse_url(connection: str) -> URL:
    """Return the parsed URL; ``DatabaseUrlError`` if it is invalid or the database is not supported."""
    try:
        url = _parse(connection.strip())  # of an argument that was read from a file, too
    except ArgumentError:
        raise DatabaseUrlError("invalid database URL", f"expected {_FORMS}") from None
    except ValueError:  # Python's message would quote the port, which may be part of a password
        raise DatabaseUrlError("invalid port", "in user and password write %40 for @, %3A for :, %2F for /") from None
    family = url.get_backend_name()
    if family not in _FAMILIES:
        raise DatabaseUrlError(f"unsupported database {family!r}", f"expected {_FORMS}")
    if family == "sqlite" and url.database in (None, "", ":memory:"):
        raise DatabaseUrlError("SQLite requires a file, shared by all processes and threads", "write sqlite:///FILE")
    if family != "sqlite" and "@" in (url.host or "") + (url.database or ""):
        raise DatabaseUrlError("user or password contains an unencoded @ or /", "write %40 for @, %2F for /")
    if family in ("mysql", "mariadb") and "," in (url.host or ""):
        advice = "write the address of a load balancer that selects the server, such as HAProxy"
        raise DatabaseUrlError("MariaDB's driver accepts one host only", advice)
    if family == "postgresql" and len(hosts(url)) > 1:
        return _read_write(url)
    return url


def hosts(url: URL) -> Sequence[str]:
    """Return the servers as ``HOST`` or ``HOST:PORT``, in the order in which they are tried."""
    if url.host:
        return [f"{url.host}:{url.port}" if url.port else url.host]
    several = url.query.get("host", ())
    return [several] if isinstance(several, str) else list(several)


def _read_write(url: URL) -> URL:
    """Return the URL of several servers; standbys are skipped unless it says otherwise."""
    if any("[" in host for host in hosts(url)):
        raise DatabaseUrlError("an IPv6 address in a list of servers", "write the names of the hosts")
    if "target_session_attrs" in url.query:
        return url
    return url.update_query_dict({"target_session_attrs": "read-write"})


def _parse(connection: str) -> URL:
    """Parse the URL; libpq's list of servers becomes SQLAlchemy's, which is an option for each."""
    several_match = _SEVERAL.match(connection)
    if several_match is None:
        return make_url(connection)
    url = make_url(several_match["head"] + several_match["tail"] + connection[several_match.end() :])
    several = several_match["hosts"].split(",")
    if not all(several) or url.host:
        raise ArgumentError
    for server in several:
        make_url(f"postgresql://{server}/")  # its port is a number
    return url.update_query_dict({"host": several})
