"""The periodic task of this part, if callbacks are forwarded."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ferroscope.config.options import Settings
from ferroscope.contracts.remote import IntrospectionSource
from ferroscope.contrib.openstack.attached import login_of
from ferroscope.runtime.roles import RoleContext


def tasks(context: RoleContext) -> Iterable[Callable[[], Any]]:
    """See ``runtime.roles.AddTasks``."""
    settings, store = context.settings, context.backend.store
    if not settings.inspector.forward_unknown_to:
        return
    from ferroscope.contrib.openstack.forwarding.inspected_elsewhere import InspectedElsewhere
    from ferroscope.contrib.openstack.imports.inspector import prepare_fetched

    yield lambda: InspectedElsewhere(
        store, introspections_of(settings), prepare_fetched(settings, store), process=context.process
    )


def introspections_of(settings: Settings) -> IntrospectionSource:
    """Return what reads introspections from the ironic-inspector of ``[inspector] forward_unknown_to``. ``SetupError``.

    It is asked with the login of ``[ironic]``, if there is one.
    """
    from ferroscope.contrib.openstack.forwarding.data import InspectorData

    has_login = settings.ironic.cloud or settings.ironic.auth_type not in ("", "none")
    return InspectorData(settings.inspector, login_of(settings) if has_login else None)
