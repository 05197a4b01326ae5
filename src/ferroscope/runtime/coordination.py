"""Builds the connection to the coordination service, and the watch over the members, if one is configured."""

from __future__ import annotations

import structlog

from ferroscope.config.coordination_options import problem
from ferroscope.config.options import Settings
from ferroscope.contracts.coordination import (
    CoordinationRefusedError,
    CoordinationService,
    CoordinationUnavailableError,
)
from ferroscope.contracts.queue import Clock, StopFlag
from ferroscope.liveness.watch import PartyWatch
from ferroscope.runtime.backend import Backend
from ferroscope.runtime.system import SetupError

_log = structlog.get_logger(__name__)


def check(settings: Settings) -> None:
    """Reject a section that is incomplete or wrong; ``SetupError``."""
    if wrong := problem(settings.coordination):
        raise SetupError(wrong, "see docs/how-to/use-a-coordination-service.md")


def build_coordination_service(settings: Settings, member: str, stop: StopFlag) -> CoordinationService | None:
    """Return the connection to the coordination service, which is not connected yet; None without one; ``SetupError``.

    ``stop`` interrupts its waits.
    """
    check(settings)
    if settings.coordination.backend == "sql":
        return None
    backend = settings.coordination.backend
    try:
        if backend == "kubernetes":
            from ferroscope.liveness.kubernetes import KubernetesService

            return KubernetesService(settings.coordination, member, stop)
        from ferroscope.liveness.tooz import ToozService

        return ToozService(settings.coordination, member, stop)
    except CoordinationRefusedError as exc:
        raise SetupError(f"[coordination] backend kubernetes: {exc}") from exc
    except ImportError as exc:
        raise SetupError(
            f"[coordination] backend {backend} needs the Python package {exc.name}, which is not installed",
            f"install Ferroscope with [{backend}], for example: pip install '.[{backend}]'",
        ) from exc


def build_party_watch(
    settings: Settings, backend: Backend, *, member: str, clock: Clock, stop: StopFlag
) -> PartyWatch | None:
    """Return the watch over the members, not started; None without a coordination service; ``SetupError``.

    The service may be unavailable for now, but if it refuses us, we refuse it.
    """
    service = build_coordination_service(settings, member, stop)
    if service is None:
        return None
    try:
        service.join()
    except CoordinationRefusedError as exc:
        if settings.coordination.backend == "kubernetes":
            raise SetupError(f"[coordination] backend kubernetes: {exc}") from exc
        raise SetupError(f"[coordination] backend_url: the service rejects our credentials: {exc}") from exc
    except CoordinationUnavailableError as exc:
        _log.warning("the coordination service is unavailable; the database alone decides", why=str(exc))
    return PartyWatch(
        service,
        member=member,
        session=settings.coordination.session_timeout,
        bus=backend.bus,
        clock=clock,
        stop=stop,
    )
