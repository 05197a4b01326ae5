"""Options of the message bus, whose transport URLs are those of oslo.messaging, and of the targets of notifications."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from ferroscope.config.declaration import Opt
from ferroscope.core.notification import EventType, NodeView, Subscription
from ferroscope_client.core import json_safety
from ferroscope_client.core.passwords import REFERENCE

SCHEMES: Final = ("rabbit", "amqp", "amqps")
# A broker that misses two heartbeats is considered down. Until then the database is polled, so nothing waits for it.
HEARTBEAT_SECONDS: Final = 10
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
    heartbeat: int = HEARTBEAT_SECONDS
    timeout: float = 5.0


def parse_url(text: str, *, tls: BrokerTls | None = None, timeout: float = 5.0) -> Broker:
    """Return what a transport URL says; ``tls`` is used unless the URL says otherwise.

    ``ValueError``: it is invalid. The message quotes nothing of the URL except unknown parameters.
    """
    match = _URL.fullmatch(text)
    if match is None:
        raise ValueError(f"invalid URL: {_SYNTAX}")
    scheme, netloc, path, query = match.groups()
    if scheme not in SCHEMES:
        raise ValueError(f"unsupported scheme {scheme}: {_SYNTAX}")
    tls = _tls(query or "", tls if scheme != "amqps" else tls or BrokerTls())
    if tls is not None and bool(tls.certificate_file) != bool(tls.key_file):
        raise ValueError("a client certificate needs both a certificate file and a key file")
    hosts = tuple(_host(part, _TLS_PORT if tls else _PORT) for part in netloc.split(",") if part)
    if not hosts:
        raise ValueError(f"the URL has no host: {_SYNTAX}")
    virtual_host = unquote((path or "/")[1:]) or "/"
    return Broker(hosts=hosts, virtual_host=virtual_host, tls=tls, timeout=timeout)


def _host(text: str, default_port: int) -> BrokerHost:
    login, _, address = text.rpartition("@")
    match = _HOST.fullmatch(address)
    port = int(match[2]) if match is not None and match[2] else default_port
    if match is None or not 0 < port < 65536:
        raise ValueError(
            f"invalid host or port: {_SYNTAX}; write %40 for @, %2C for a comma and %2F for / in passwords"
        )
    user, _, password = login.partition(":")
    return BrokerHost(match[1].strip("[]"), port, unquote(user) or "guest", unquote(password) if login else "guest")


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
            "For TLS, append ?ssl=true, and if needed &ssl_ca_file=FILE, and &ssl_cert_file=FILE&ssl_key_file=FILE for "
            "a client certificate. Write $$ for $, and %40 for @ in passwords. Empty: processes are woken up by the "
            "database, or poll it.",
            secret=True,
        ),
    ] = ""
    exchange: Annotated[
        str,
        Opt(
            "Name of the fanout exchange. Installations that share a virtual host need different ones.",
            regex=r"\A[A-Za-z0-9_.:-]{1,127}\Z",
        ),
    ] = "ferroscope"
    connect_timeout: Annotated[float, Opt("Timeout for connecting to one broker, in seconds.", ge=0.5, le=60)] = 5.0

    def broker(self) -> Broker | None:
        """Return how to reach RabbitMQ, None if it is not used; ``ValueError``."""
        if not self.transport_url:
            return None
        try:
            return parse_url(self.transport_url, timeout=self.connect_timeout)
        except ValueError as exc:
            raise ValueError(f"[bus] transport_url: {exc}") from None


Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\Z")]
Seconds = Annotated[float, msgspec.Meta(ge=0.1, le=60.0)]
Connections = Annotated[int, msgspec.Meta(ge=1, le=16)]
# Names of exchanges and topics; a queue's name is a topic and a priority.
Amqp = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_.:-]{1,127}\Z")]


class WebhookTarget(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One ``target``: a webhook, which events it gets, and how they are signed and sent."""

    name: Name
    url: str
    secret: str = ""
    events: tuple[str, ...] = ()
    nodes: dict[str, str] = {}
    ca_file: str = ""
    timeout: Seconds = 10.0
    connections: Connections = 4


class RabbitmqTarget(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One ``target``: OpenStack's notification bus, and which events it gets.

    ``queues`` has to be what its consumers declare: quorum, durable (classic), or transient (classic).
    """

    name: Name
    url: str
    exchange: Amqp = "openstack"
    topic: Amqp = "versioned_notifications"
    queues: Literal["quorum", "durable", "transient"] = "quorum"
    events: tuple[str, ...] = ()
    nodes: dict[str, str] = {}
    ca_file: str = ""
    timeout: Seconds = 10.0
    connections: Connections = 4

    def broker(self) -> Broker:
        """Return how to reach it; ``ValueError``. A ``ca_file`` means TLS."""
        tls = BrokerTls(ca_file=self.ca_file) if self.ca_file else None
        return parse_url(self.url, tls=tls, timeout=self.timeout)


Target = WebhookTarget | RabbitmqTarget


class NotificationSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[notifications]``: events about inspections and nodes, sent to webhooks and to RabbitMQ."""

    target: Annotated[
        tuple[str, ...],
        Opt(
            "A target of events, as JSON; may be repeated. name and url are required; the url of a webhook begins with "
            "https:// or http://, OpenStack's notification bus with rabbit://. events: patterns of types, such "
            'as inspection.*; default: all. nodes: patterns of node fields, such as {"owner": "lab-*"}. Also: ca_file, '
            "timeout (seconds), connections. Of a webhook: secret, the key of the signature, as a file or a reference "
            "such as secret://file/webhook. Of RabbitMQ: exchange, topic, queues (quorum, durable or transient). "
            'Example: {"name": "cmdb", "url": "https://cmdb.example.com/hook", "secret": "/etc/ferroscope/cmdb.key"}.',
            repeated=True,
            secret=True,
        ),
    ] = ()
    source: Annotated[
        str, Opt("The attribute source of CloudEvents: a URI that names this service; with the ID it is unique.")
    ] = "/ferroscope"
    networks: Annotated[
        tuple[str, ...],
        Opt("Networks in which webhooks may be, such as 10.0.0.0/8,2001:db8::/32. Empty: all networks."),
    ] = ()

    def targets(self) -> tuple[Target, ...]:
        """Return the targets; ``ValueError`` if one is invalid."""
        targets = tuple(_decode_target(text) for text in self.target)
        names = [target.name for target in targets]
        if len({*names}) < len(names):
            raise ValueError("[notifications] target: two targets have the same name")
        return targets

    def subscriptions(self) -> list[Subscription]:
        """Return which target gets which events; ``ValueError`` if one is invalid."""
        return [Subscription(target=target.name, events=target.events, nodes=target.nodes) for target in self.targets()]


class _Url(msgspec.Struct):
    url: str


def _decode_target(text: str) -> Target:
    try:
        url = json_safety.decode_own(text, _Url).url
        scheme = url.partition("://")[0]
        kind: type[Target] = RabbitmqTarget if scheme in SCHEMES else WebhookTarget
        target: Target = json_safety.decode_own(text, kind)
    except json_safety.JsonError as exc:  # the message quotes nothing of the text
        raise ValueError(f"[notifications] target: {exc}") from None
    problem = _bus_problem(target) if isinstance(target, RabbitmqTarget) else _webhook_problem(target)
    if problem := problem or _filter_problem(target):
        raise ValueError(f"[notifications] target {target.name}: {problem}")
    return target


def _bus_problem(target: RabbitmqTarget) -> str:
    try:
        target.broker()
    except ValueError as exc:
        return f"url: {exc}"
    return ""


def _webhook_problem(target: WebhookTarget) -> str:
    try:
        url = urlsplit(target.url)
        valid = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        valid = False
    if not valid:
        return "url must be an http or https URL, or a rabbit URL"
    if url.username or url.password:
        return "url must not contain credentials; consumers recognize the service by the signature (secret)"
    if target.secret and not target.secret.startswith((REFERENCE, "/")):
        return f"secret must be an absolute path or a reference ({REFERENCE}...), not the secret itself"
    return ""


def _filter_problem(target: Target) -> str:
    for pattern in target.events:
        if not any(Subscription(target="", events=(pattern,)).wants(kind) for kind in EventType):
            return f"events: no type matches {pattern!r}; the types are {', '.join(EventType)}"
    unknown = target.nodes.keys() - set(NodeView.__struct_fields__)
    if unknown:
        return f"nodes: unknown field {min(unknown)}; possible are {', '.join(NodeView.__struct_fields__)}"
    return ""
