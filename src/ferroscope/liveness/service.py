"""The coordination service that ``[coordination]`` selects, and the watch over the members that are alive in it."""

from __future__ import annotations

import structlog

from ferroscope.config.coordination_options import problem
from ferroscope.config.errors import SetupError, extra
from ferroscope.config.options import Settings
from ferroscope.config.plugins import backend as selected
from ferroscope.contracts.store import (
    Bus,
    Clock,
    CoordinationRefusedError,
    CoordinationService,
    CoordinationUnavailableError,
    StopFlag,
)
from ferroscope.liveness.watch import PartyWatch
from ferroscope_client.installed import PluginError

_log = structlog.get_logger(__name__)


def check(settings: Settings) -> None:
    """Reject a section that is incomplete or wrong; ``SetupError``."""
    if wrong := problem(settings.coordination):
        raise SetupError(wrong, "see: ferroscope docs use-a-coordination-service")


def build_coordination_service(settings: Settings, member: str, stop: StopFlag) -> CoordinationService | None:
    """Return the connection to the coordination service, which is not connected yet; None without one; ``SetupError``.

    ``stop`` interrupts its waits.
    """
    check(settings)
    if settings.coordination.backend == "sql":
        return None
    backend = settings.coordination.backend
    try:
        service: CoordinationService = selected(f"coordination.{backend}")(settings.coordination, member, stop)
    except PluginError as exc:
        raise SetupError(str(exc), exc.advice) from exc
    except CoordinationRefusedError as exc:
        raise SetupError(f"[coordination] backend {backend}: {exc}") from exc
    except ImportError as exc:
        raise SetupError(
            f"[coordination] backend {backend} needs the Python package {exc.name}, which is not installed",
            extra(backend),
        ) from exc
    return service


def build_party_watch(settings: Settings, bus: Bus, *, member: str, clock: Clock, stop: StopFlag) -> PartyWatch | None:
    """Return the watch over the members, not started; None without a coordination service; ``SetupError``.

    The service may be unavailable for now, but must not refuse us.
    """
    service = build_coordination_service(settings, member, stop)
    if service is None:
        return None
    try:
        service.join()
    except CoordinationRefusedError as exc:
        if settings.coordination.backend != "tooz":
            raise SetupError(f"[coordination] backend {settings.coordination.backend}: {exc}") from exc
        raise SetupError(f"[coordination] backend_url: the service rejects our credentials: {exc}") from exc
    except CoordinationUnavailableError as exc:
        _log.warning("the coordination service is unavailable; the database alone decides", why=str(exc))
    return PartyWatch(
        service,
        member=member,
        session=settings.coordination.session_timeout,
        bus=bus,
        clock=clock,
        stop=stop,
    )
