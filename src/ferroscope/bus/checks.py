"""Whether RabbitMQ can be used as ``[bus]`` says: its package, its files, its answer."""

from __future__ import annotations

import ssl

import structlog

from ferroscope.config.errors import SetupError, extra
from ferroscope.config.messaging_options import Broker
from ferroscope.config.options import Settings

_log = structlog.get_logger(__name__)


def require_kombu(option: str) -> None:
    """``SetupError`` naming the option if the extra for RabbitMQ is not installed."""
    try:
        import kombu  # noqa: F401
    except ImportError as exc:
        raise SetupError(
            f"{option} needs the Python package {exc.name}, which is not installed",
            extra("openstack"),
        ) from exc


def check_bus_setup(broker: Broker) -> None:
    """Check the package and the files that RabbitMQ needs; ``SetupError``."""
    from ferroscope.remote.rabbitmq import check_files

    require_kombu("[bus] transport_url")
    try:
        check_files(broker)
    except OSError as exc:  # also ssl.SSLError
        reason = "no valid certificate or key" if isinstance(exc, ssl.SSLError) else exc.strerror
        raise SetupError(
            f"[bus] a file for TLS cannot be used: {reason}",
            "correct ssl_ca_file, ssl_cert_file and ssl_key_file in transport_url",
        ) from exc


def check_bus(settings: Settings) -> None:
    """Check that RabbitMQ, if configured, accepts us; ``SetupError``. It may be down for now."""
    broker = settings.bus.broker()
    if broker is None:
        return
    from ferroscope.remote.rabbitmq import BrokerError, check

    check_bus_setup(broker)
    try:
        unavailable = check(broker)
    except BrokerError as exc:
        raise SetupError(
            f"[bus] transport_url: RabbitMQ refuses the connection: {exc}", "see ferroscope doctor"
        ) from exc
    if unavailable is not None:
        _log.warning("RabbitMQ is unavailable; polling until it is back", error=str(unavailable))
