"""TLS to the database, by options of its URL: who is there is proven, and nobody in between is taken for it."""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from sqlalchemy import make_url, text

from ferroscope.config.options import DatabaseSettings, Settings
from ferroscope.contracts.errors import StoreUnavailableError
from ferroscope.db.engine import build_engine
from ferroscope.db.prepare import ensure_schema
from ferroscope.runtime.backend import Backend, open_backend
from ferroscope.runtime.system import SystemClock
from tests.support import databases, examples
from tests.support.certificates import Authority, Pair
from tests.support.daemons import CLIENTS
from tests.support.processes import PATIENCE, account
from tests.support.servers import Server

# What an operator adds to the URL; %s is the file of the certificates to trust.
_OPTIONS = {
    "postgresql": {"sslmode": "verify-full", "sslrootcert": "%s"},
    "mariadb": {"ssl_ca": "%s"},
}
_IN_USE = {
    "postgresql": "SELECT version FROM pg_stat_ssl WHERE pid = pg_backend_pid() AND ssl",
    "mariadb": "SELECT variable_value FROM information_schema.session_status WHERE variable_name = 'Ssl_version'",
}


class Secured:
    """A server that has a certificate for 127.0.0.1, and an empty database on it."""

    def __init__(self, server: Server, url: str, certificate: Path) -> None:
        self.kind, self.server = server.kind, server
        self._url = make_url(url)
        self.certificate = certificate

    def require_certificates(self, authority: Authority) -> None:
        """Let the user ``ferroscope`` log in with a certificate of that name only."""
        clients = self.server.directory / CLIENTS
        shutil.copy(authority.ca, clients)
        clients.chmod(0o644)
        hba = self.server.directory / "data" / "pg_hba.conf"
        if hba.exists():
            hba.write_text("hostssl all all 127.0.0.1/32 cert\n")
        else:
            engine = build_engine(self.settings(trusted=self.certificate).database)
            with engine.begin() as connection:
                connection.execute(text("CREATE USER ferroscope REQUIRE SUBJECT '/CN=ferroscope'"))
                connection.execute(text("GRANT ALL ON *.* TO ferroscope"))
            engine.dispose()
        self.server.restart()

    def settings_with(self, pair: Pair | None) -> Settings:
        """Return the settings of the user ``ferroscope`` with this certificate."""
        settings = self.settings(trusted=self.certificate)
        prefix = "ssl" if self.kind == "postgresql" else "ssl_"
        files = {} if pair is None else {f"{prefix}cert": str(pair.certificate), f"{prefix}key": str(pair.key)}
        url = make_url(settings.database.connection).set(username="ferroscope").update_query_dict(files)
        connection = url.render_as_string(hide_password=False)
        return Settings(database=msgspec.structs.replace(settings.database, connection=connection))

    def settings(self, *, trusted: Path | None = None, host: str = "127.0.0.1") -> Settings:
        options = {name: value.replace("%s", str(trusted)) for name, value in _OPTIONS[self.kind].items()}
        url = self._url.set(host=host).update_query_dict(options if trusted else {})
        connection = url.render_as_string(hide_password=False)
        return Settings(database=DatabaseSettings(connection=connection, connect_timeout=3))


@pytest.fixture(params=["postgresql", "mariadb"])
def secured(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Secured]:
    """Give a server of each kind."""
    server: Server = request.getfixturevalue(f"{request.param}_server")
    with databases.fresh(server, migrated=False) as url:
        user = account({"postgresql": "postgres", "mariadb": "mysql"}[request.param])
        certificate = _certificate(server.directory, "tls")
        for name in ("tls.crt", "tls.key"):
            if user is not None:
                shutil.chown(server.directory / name, user, user)
        server.stop()
        hba = server.directory / "data" / "pg_hba.conf"
        if hba.exists():
            hba.write_text("hostssl all all 127.0.0.1/32 trust\n")
        server.start()
        trusted = tmp_path / "ca.pem"
        trusted.write_bytes(certificate.read_bytes())
        yield Secured(server, url, trusted)
        (server.directory / "tls.key").unlink()
        (server.directory / CLIENTS).unlink(missing_ok=True)
        if hba.exists():
            hba.write_text("host all all 127.0.0.1/32 trust\n")
        server.restart()  # the database is removed without TLS


def _certificate(directory: Path, name: str) -> Path:
    files = ["-keyout", str(directory / f"{name}.key"), "-out", str(directory / f"{name}.crt")]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=db", *files]
    subprocess.run([*command, "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
    return directory / f"{name}.crt"


@contextmanager
def _opened(settings: Settings) -> Iterator[Backend]:
    stop, others = threading.Event(), threading.enumerate()
    backend = open_backend(settings, clock=SystemClock(), stop=stop, listen=True)
    try:
        yield backend
    finally:
        stop.set()
        for thread in threading.enumerate():
            if thread.name == "wake-up" and thread not in others:
                thread.join(PATIENCE)
        backend.close()


def test_a_server_that_proves_who_it_is_is_used_over_tls(secured: Secured) -> None:
    settings = secured.settings(trusted=secured.certificate)
    ensure_schema(settings, upgrade=True)
    with _opened(settings) as backend:
        backend.store.write(lambda tx: tx.members.beat(examples.member(), 6.0))
        with backend.engine.connect() as connection:
            assert str(connection.execute(text(_IN_USE[secured.kind])).scalar_one()).startswith("TLS")


def test_a_server_that_cannot_prove_it_is_not_used(secured: Secured, tmp_path: Path) -> None:
    plain = secured.settings().database
    options = {"sslmode": "disable"} if secured.kind == "postgresql" else {"ssl_disabled": "true"}
    url = make_url(plain.connection).update_query_dict(options).render_as_string(hide_password=False)
    for settings in (
        secured.settings(trusted=_certificate(tmp_path, "other")),
        secured.settings(trusted=secured.certificate, host="localhost"),
        Settings(database=msgspec.structs.replace(plain, connection=url)),
    ):
        with pytest.raises(StoreUnavailableError):
            ensure_schema(settings, upgrade=True)


def test_a_server_that_asks_for_a_client_certificate_gets_it(secured: Secured, tmp_path: Path) -> None:
    authority = Authority(tmp_path, "clients")
    secured.require_certificates(authority)
    stranger = Authority(tmp_path, "stranger").issue("ferroscope", file="strange")
    right, other = authority.issue("ferroscope"), authority.issue("somebody")
    for pair in (stranger, right, other):
        pair.key.chmod(0o600)
    for wrong in (None, other, stranger):
        with pytest.raises(StoreUnavailableError):
            ensure_schema(secured.settings_with(wrong), upgrade=True)
    settings = secured.settings_with(right)
    ensure_schema(settings, upgrade=True)
    with _opened(settings) as backend:
        backend.store.write(lambda tx: tx.members.beat(examples.member(), 6.0))
