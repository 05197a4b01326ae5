"""The interface of roles and periodic tasks that packages add.

A role has an entry point in the group ``ferroscope.roles``, whose value is a ``Role``; it has a process of its own (see
``role_process``). Tasks have one in the group ``ferroscope.tasks``, whose value is an ``AddTasks``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any, Protocol

import msgspec

from ferroscope.config.errors import SetupError
from ferroscope.config.options import Settings
from ferroscope.contracts.store import Clock, StopFlag
from ferroscope.contracts.telemetry import SILENT, Meter
from ferroscope.runtime.backend import Backend
from ferroscope_client.installed import PluginError, load_installed


class RoleContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a role is built of. ``stop`` is set when the process stops, and interrupts everything that waits."""

    settings: Settings
    backend: Backend
    clock: Clock
    stop: StopFlag
    process: str
    meter: Meter = SILENT


class SingletonTask(msgspec.Struct, frozen=True, kw_only=True):
    """``name``: of the lease of which one process has to be the holder. ``make``: makes the task of this name (see
    ``periodic.singleton``), and a new one if a step of the last one hangs. ``start``: called once the process is a
    member.
    """

    name: str
    make: Callable[[], Any]
    start: Callable[[], object] = lambda: None


class Role(Protocol):
    """What a process with this role does."""

    drives_bmcs: bool
    """Whether it needs working drivers, and the resolver of their secrets."""

    def check(self, settings: Settings) -> None:
        """Reject settings that cannot be used, before anything is opened; ``SetupError``."""

    def build(self, context: RoleContext) -> AbstractContextManager[SingletonTask]:
        """Yield the work; close its dependencies at the end. ``SetupError``, ``StoreError``, ``OSError``."""


class AddTasks(Protocol):
    """What a package adds to the periodic tasks, with an entry point in the group ``ferroscope.tasks``."""

    def __call__(self, context: RoleContext, /) -> Iterable[Callable[[], Any]]:
        """Yield a maker of each task (see ``periodic.singleton``); none if there is nothing to do."""


def role_of(name: str) -> Role:
    """Return the role that a package adds; ``SetupError``."""
    try:
        role: Role | None = load_installed("ferroscope.roles").get(name)
    except PluginError as exc:
        raise SetupError(str(exc), exc.advice) from exc
    if role is None:
        raise SetupError(f"no installed package has the role {name!r}", "install the package that adds it")
    return role
