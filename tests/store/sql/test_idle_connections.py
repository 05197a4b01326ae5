"""Idle connections are probed, so that a firewall or NAT does not forget them, and a dead one is found in seconds."""

from __future__ import annotations

import os
import socket
from contextlib import closing

from ferroscope.config.options import DatabaseSettings
from ferroscope.db.engine import build_engine


def test_a_connection_to_a_server_is_probed_after_five_seconds(database_url: str, database_kind: str) -> None:
    engine = build_engine(DatabaseSettings(connection=database_url, statement_timeout=4.0))
    with engine.connect() as connection:
        opened = connection.connection.dbapi_connection
        if database_kind == "sqlite":
            assert not hasattr(opened, "fileno"), "SQLite has no connection over a network"
            return
        number = opened.fileno() if database_kind == "postgresql" else opened._sock.fileno()
        with closing(socket.socket(fileno=os.dup(number))) as sock:
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT, socket.TCP_USER_TIMEOUT)
            assert [sock.getsockopt(socket.IPPROTO_TCP, option) for option in options] == [5, 2, 3, 4000]
    engine.dispose()
