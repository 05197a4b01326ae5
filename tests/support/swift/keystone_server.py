"""A whole OpenStack Keystone of one process: SQLite, Fernet tokens, and as little hashing as it knows.

Run by the interpreter of ``.swift-venv``. ``keystone_server.py DIRECTORY`` makes the database, the keys and the
user ``admin`` with the password ``ADMIN``, as ``keystone-manage`` does. ``keystone_server.py DIRECTORY PORT
SECONDS`` serves a copy of that; a token lives for SECONDS. ``tests.support.keystone`` adds the rest by the API.
"""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

CONFIGURATION = """
[DEFAULT]
log_file = {directory}/keystone.log
[database]
connection = sqlite:///{directory}/keystone.db
[fernet_tokens]
key_repository = {directory}/fernet
[fernet_receipts]
key_repository = {directory}/receipts
[credential]
key_repository = {directory}/credentials
[token]
expiration = {seconds}
allow_expired_window = 600
[identity]
password_hash_rounds = 4
"""


class Threaded(ThreadingMixIn, WSGIServer):
    """A server that answers several at a time."""

    daemon_threads = True


class Silent(WSGIRequestHandler):
    """A handler that notes nothing: requests are the tests' business."""

    def log_message(self, *_arguments: Any) -> None:
        """Forget it."""


def install(directory: Path) -> None:
    """Make the database, the keys and the first user."""
    from keystone import server
    from keystone.cmd.bootstrap import Bootstrapper
    from keystone.common import fernet_utils
    from keystone.common.sql import upgrades

    configuration = directory / "install.conf"
    configuration.write_text(CONFIGURATION.format(directory=directory, seconds=60))
    server.configure(config_files=[str(configuration)])
    upgrades.offline_sync_database_to_version()
    for kind in ("fernet", "receipts"):
        place = directory / kind
        place.mkdir(mode=0o700)
        fernet_utils.FernetUtils(str(place), 3, "fernet_tokens").initialize_key_repository()
    first = Bootstrapper()
    first.admin_username, first.admin_password, first.admin_role_name = "admin", "ADMIN", "admin"
    first.project_name, first.service_name, first.region_id = "admin", "keystone", "one"
    first.public_url = first.internal_url = "http://127.0.0.1/v3"
    first.bootstrap()


def main(directory: Path, port: int, seconds: int) -> None:
    configuration = directory / "keystone.conf"
    if not configuration.exists():
        configuration.write_text(CONFIGURATION.format(directory=directory, seconds=seconds))
        with closing(sqlite3.connect(directory / "keystone.db")) as connection, connection:
            connection.execute("UPDATE endpoint SET url = ?", [f"http://127.0.0.1:{port}/v3"])
    from keystone.server.flask import core

    application = core.initialize_application(name="public", config_files=[str(configuration)])
    make_server("127.0.0.1", port, application, Threaded, Silent).serve_forever()


if __name__ == "__main__":
    own, sys.argv[1:] = sys.argv[1:], []  # what is left there, Keystone takes for its own
    if len(own) == 1:
        install(Path(own[0]).resolve())
    else:
        main(Path(own[0]).resolve(), int(own[1]), int(own[2]))
