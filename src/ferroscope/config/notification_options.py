"""Options of notifications: the targets of events about inspections and nodes."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import urlsplit

import msgspec

from ferroscope.config.declaration import Opt
from ferroscope.config.rabbitmq_options import SCHEMES, Broker, BrokerTls, parse_url
from ferroscope.core.notification import Kind, NodeView, Subscription
from ferroscope.core.secrets import REFERENCE

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
            "https:// or http://, that of OpenStack's notification bus with rabbit://. events: patterns of types, such "
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
    interval: Annotated[float, Opt("Seconds between two looks into an empty outbox.", ge=0.05, le=60)] = 0.5
    max_retry_delay: Annotated[
        float, Opt("Maximum delay in seconds before a failed delivery is retried; the first one is 1 s.", ge=1)
    ] = 60.0
    retry_for: Annotated[
        float,
        Opt(
            "Seconds after which an event is given up that its target does not accept although it accepts others; it "
            "becomes a dead letter. While a target is down, events wait for it.",
            ge=1,
        ),
    ] = 21600.0
    max_pending: Annotated[
        int,
        Opt("Maximum number of events that wait for one target; the oldest ones become dead letters.", ge=100),
    ] = 100_000
    keep_delivered: Annotated[float, Opt("Days for which delivered events are kept.", ge=0)] = 1.0
    keep_dead: Annotated[float, Opt("Days for which dead letters are kept, and events that wait.", ge=0)] = 7.0
    warn_after: Annotated[
        float, Opt("Seconds for which a target may be down before the status of the service reports it.", ge=1)
    ] = 300.0

    def targets(self) -> tuple[Target, ...]:
        """Return the targets; ``ValueError`` if one is invalid."""
        found = tuple(_decoded(text) for text in self.target)
        names = [one.name for one in found]
        if len({*names}) < len(names):
            raise ValueError("[notifications] target: two targets have the same name")
        return found

    def subscriptions(self) -> list[Subscription]:
        """Return which target gets which events."""
        return [Subscription(target=one.name, events=one.events, nodes=one.nodes) for one in self.targets()]


class _Url(msgspec.Struct):
    url: str


def _decoded(text: str) -> Target:
    try:
        url = msgspec.json.decode(text, type=_Url).url
        kind: type[Target] = RabbitmqTarget if url.partition("://")[0] in SCHEMES else WebhookTarget
        found: Target = msgspec.json.decode(text, type=kind)
    except msgspec.DecodeError as exc:  # the message quotes nothing of the text
        raise ValueError(f"[notifications] target: {exc}") from None
    problem = _bus_problem(found) if isinstance(found, RabbitmqTarget) else _webhook_problem(found)
    if problem := problem or _filter_problem(found):
        raise ValueError(f"[notifications] target {found.name}: {problem}")
    return found


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
        if not any(Subscription(target="", events=(pattern,)).wants(kind) for kind in Kind):
            return f"events: no type matches {pattern!r}; the types are {', '.join(Kind)}"
    unknown = target.nodes.keys() - set(NodeView.__struct_fields__)
    if unknown:
        return f"nodes: unknown field {min(unknown)}; possible are {', '.join(NodeView.__struct_fields__)}"
    return ""
