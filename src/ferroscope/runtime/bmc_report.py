"""A report of what a node's BMC answers, made on a host of the service: with its database, secrets and limits."""

from __future__ import annotations

import threading

import msgspec

from ferroscope import __version__
from ferroscope.config.options import Settings
from ferroscope.contracts.bmc import ReportsAnswers
from ferroscope.contracts.errors import BmcError
from ferroscope.core import bmc_access
from ferroscope.core.model import Document
from ferroscope.core.reasons import Reason
from ferroscope.runtime.backend import opened
from ferroscope.runtime.externals import build_drivers, close_drivers
from ferroscope.runtime.wiring import build_resolver
from ferroscope.secrets.references import SecretReader


def report(settings: Settings, ident: str, stop: threading.Event, *, identities: bool) -> Document:
    """Return the report of the node with this name or UUID.

    ``SetupError``, ``SchemaError``, ``StoreUnavailableError``, ``NotFoundError``, ``BmcError``.
    """
    with opened(settings) as backend:
        found = backend.store.read(lambda tx: tx.nodes.get(ident))
        if why := bmc_access.withheld(found, networks=settings.drivers.bmc_networks):
            raise BmcError(why, transient=False, reason=Reason.BMC_NOT_ALLOWED)
        node = SecretReader(backend.keys, build_resolver(settings, stop)).revealed(found)
    only = msgspec.structs.replace(settings.drivers, enabled=(node.driver,))
    drivers = build_drivers(msgspec.structs.replace(settings, drivers=only), stop)
    try:
        driver: object = drivers[node.driver]
        if not isinstance(driver, ReportsAnswers):
            message = f"the driver {node.driver} makes no reports; only those of Redfish services do"
            raise BmcError(message, transient=False, reason=Reason.BMC_REFUSED)
        return {"ferroscope": __version__} | driver.report(node, identities=identities)
    finally:
        close_drivers(drivers)
