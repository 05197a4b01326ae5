"""Options of the message bus, and transport URLs of RabbitMQ as oslo.messaging writes them."""

from __future__ import annotations

import re
from typing import Annotated, Final
from urllib.parse import parse_qsl, unquote

import msgspec

from ferroscope.config.declaration import Opt

SCHEMES: Final = ("rabbit", "amqp", "amqps")
_PORT, _TLS_PORT = 5672, 5671
_URL: Final = re.compile(r"([a-z]+)://([^/?#]*)(/[^?#]*)?(\?[^#]*)?")
_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?")
_SYNTAX: Final = "expected rabbit://USER:PASSWORD@HOST:PORT,USER:PASSWORD@HOST:PORT/VHOST"
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")
# The options of [oslo_messaging_rabbit] that a URL may set, and our names for them.
_FILES: Final = {"ssl_ca_file": "ca_file", "ssl_cert_file": "certificate_file", "ssl_key_file": "key_file"}


class BrokerHost(msgspec.Struct, frozen=True):
    """One node of the cluster, and the account there."""

    host: str
    port: int
    user: str
    password: str

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    __repr__ = __str__


class BrokerTls(msgspec.Struct, frozen=True, kw_only=True):
    """``ca_file`` "": the certificates that the system trusts; ``certificate_file`` and ``key_file``: of the client."""

    ca_file: str = ""
    certificate_file: str = ""
    key_file: str = ""


class Broker(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach RabbitMQ. Its ``repr`` shows no password. Times are in seconds."""

    hosts: tuple[BrokerHost, ...]
    virtual_host: str = "/"
    tls: BrokerTls | None = None
    heartbeat: int = 10
    timeout: float = 5.0


def parse_url(text: str, *, tls: BrokerTls | None = None, heartbeat: int = 10, timeout: float = 5.0) -> Broker:
    """Return what a transport URL says; ``tls`` is used unless the URL says otherwise.

    ``ValueError``: it is invalid. The message quotes nothing of the URL except unknown parameters.
    """
    found = _URL.fullmatch(text)
    if found is None:
        raise ValueError(f"invalid URL: {_SYNTAX}")
    scheme, netloc, path, query = found.groups()
    if scheme not in SCHEMES:
        raise ValueError(f"unsupported scheme {scheme}: {_SYNTAX}")
    tls = _tls(query or "", tls if scheme != "amqps" else tls or BrokerTls())
    if tls is not None and bool(tls.certificate_file) != bool(tls.key_file):
        raise ValueError("a client certificate needs both a certificate file and a key file")
    hosts = tuple(_host(part, _TLS_PORT if tls else _PORT) for part in netloc.split(",") if part)
    if not hosts:
        raise ValueError(f"the URL has no host: {_SYNTAX}")
    virtual_host = unquote((path or "/")[1:]) or "/"
    return Broker(hosts=hosts, virtual_host=virtual_host, tls=tls, heartbeat=heartbeat, timeout=timeout)


def _host(text: str, default_port: int) -> BrokerHost:
    login, _, address = text.rpartition("@")
    found = _HOST.fullmatch(address)
    port = int(found[2]) if found is not None and found[2] else default_port
    if found is None or not 0 < port < 65536:
        raise ValueError(
            f"invalid host or port: {_SYNTAX}; write %40 for @, %2C for a comma and %2F for / in passwords"
        )
    user, _, password = login.partition(":")
    return BrokerHost(found[1].strip("[]"), port, unquote(user) or "guest", unquote(password) if login else "guest")


def _tls(query: str, tls: BrokerTls | None) -> BrokerTls | None:
    files: dict[str, str] = {}
    for name, value in parse_qsl(query.removeprefix("?"), keep_blank_values=True):
        if name == "ssl" and value.lower() in _TRUE:
            tls = tls or BrokerTls()
        elif name == "ssl" and value.lower() in _FALSE:
            tls = None
        elif name in _FILES:
            files[_FILES[name]] = value
        else:
            raise ValueError(f"unsupported parameter {name!r}; supported: ssl (true or false), {', '.join(_FILES)}")
    if files and tls is None:
        raise ValueError("the URL names TLS files, but ssl is not true")
    return None if tls is None else msgspec.structs.replace(tls, **files)


class BusSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[bus]``: RabbitMQ as the message bus that wakes up the processes; the database stays the queue."""

    transport_url: Annotated[
        str,
        Opt(
            "URL of RabbitMQ, as of oslo.messaging: rabbit://USER:PASSWORD@HOST:PORT,USER:PASSWORD@HOST:PORT/VHOST. "
            "It may set ssl, ssl_ca_file, ssl_cert_file and ssl_key_file, as in ?ssl=true. Write $$ for $, and %40 for "
            "@ in passwords. Empty: processes are woken up by the database, or poll it.",
            secret=True,
        ),
    ] = ""
    exchange: Annotated[
        str,
        Opt(
            "Name of the fanout exchange. Installations that share a virtual host need different ones.",
            regex=r"[A-Za-z0-9_.:-]{1,127}\Z",
        ),
    ] = "ferroscope"
    tls: Annotated[bool, Opt("Connect with TLS; the default port is then 5671.")] = False
    tls_ca_file: Annotated[
        str, Opt("PEM file with the CA certificates of the brokers. Empty: those that the system trusts.")
    ] = ""
    tls_certificate_file: Annotated[
        str, Opt("PEM file with the certificate of this client, if brokers ask for it.")
    ] = ""
    tls_key_file: Annotated[str, Opt("PEM file with its key.")] = ""
    heartbeat: Annotated[
        int,
        Opt("Seconds between heartbeats; a broker that misses two of them is considered down.", ge=2, le=600),
    ] = 10
    connect_timeout: Annotated[float, Opt("Timeout for connecting to one broker, in seconds.", ge=0.5, le=60)] = 5.0

    def broker(self) -> Broker | None:
        """Return how to reach RabbitMQ, None if it is not used; ``ValueError``."""
        if not self.transport_url:
            return None
        files = {
            "ca_file": self.tls_ca_file,
            "certificate_file": self.tls_certificate_file,
            "key_file": self.tls_key_file,
        }
        try:
            return parse_url(
                self.transport_url,
                tls=BrokerTls(**files) if self.tls else None,
                heartbeat=self.heartbeat,
                timeout=self.connect_timeout,
            )
        except ValueError as exc:
            raise ValueError(f"[bus] transport_url: {exc}") from None
