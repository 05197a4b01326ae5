"""Checks the settings of a process by its roles before anything is opened."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import partial
from importlib import import_module
from threading import Event
from typing import TYPE_CHECKING, Final

from ferroscope.config.errors import OptionRefusedError, SetupError
from ferroscope.config.options import Settings
from ferroscope.runtime.start_checks import Check, list_checks, refuse_problems
from ferroscope.runtime.system import SystemClock
from ferroscope_client.installed import PluginError, load_installed

if TYPE_CHECKING:
    from ferroscope.runtime.roles import Role

# Roles that talk to BMCs, or to the attached Ironic.
_DRIVE: Final = frozenset({"api", "worker"})
_OWN: Final = frozenset({"api", "worker", "periodic"})


def check(settings: Settings, roles: Collection[str]) -> None:
    """Raise ``OptionRefusedError`` with all problems of the settings of a process with these roles."""
    try:
        others = _others(frozenset(roles))
    except SetupError as exc:
        raise OptionRefusedError(str(exc)) from exc
    refuse_problems(_checks(settings, frozenset(roles), others))


def _checks(settings: Settings, roles: frozenset[str], others: Sequence[Role]) -> Iterator[Check]:
    yield from list_checks(settings, api="api" in roles)
    drives = any(role.drives_bmcs for role in others)
    if roles & _DRIVE or drives:
        yield from _inspections(settings, roles, drives=drives)
    if "api" in roles:
        yield from _api(settings)
    for role in others:
        yield partial(role.check, settings)


def _inspections(settings: Settings, roles: frozenset[str], *, drives: bool) -> Iterator[Check]:
    from ferroscope.liveness import service
    from ferroscope.runtime import externals, periodic_tasks, wiring
    from ferroscope.storage.stores import build_object_stores

    yield partial(externals.check_drivers, settings)
    if "worker" in roles or drives:
        yield partial(wiring.build_resolver, settings, Event())
    if roles & {"api", "worker"}:
        yield partial(wiring.built_in_rules, settings)
        yield partial(build_object_stores, settings, Event())
        yield partial(service.check, settings)
    if "worker" in roles:
        yield partial(wiring.build_pipeline, settings)
    if "periodic" in roles:
        yield partial(service.build_coordination_service, settings, "", Event())
        yield partial(periodic_tasks.build_senders, settings, Event())


def _api(settings: Settings) -> Iterator[Check]:
    from ferroscope.api.auth.configured import build_authentication, build_policy
    from ferroscope.runtime.wiring import build_forwarder

    yield _routes
    yield partial(build_authentication, settings, SystemClock())
    yield partial(build_policy, settings, SystemClock(), needed=False)
    yield partial(build_forwarder, settings)


def _routes() -> None:
    """Reject routes and pages of other packages that cannot be used; ``SetupError``."""
    try:
        import_module("ferroscope.api.routes")
        load_installed("ferroscope.pages")
    except PluginError as exc:
        raise SetupError(str(exc), exc.advice) from exc


def _others(roles: frozenset[str]) -> list[Role]:
    """Return the roles that packages add; ``SetupError``."""
    if roles <= _OWN:
        return []
    from ferroscope.runtime.roles import role_of

    return [role_of(name) for name in sorted(roles - _OWN)]
