"""Tables that other PXE filters have left in the firewall of this host."""

from __future__ import annotations

import msgspec
import structlog

from ferroscope.config.options import PxeFilterSettings
from ferroscope.contrib.boot.pxe_filter import PxeFilterError
from ferroscope.contrib.boot.pxe_filter.backends.base import PREFIX as TABLE_PREFIX
from ferroscope.contrib.boot.pxe_filter.backends.build import rules_of
from ferroscope.contrib.boot.pxe_filter.backends.nftables import Tables
from ferroscope.contrib.boot.pxe_filter.instance import is_running

_log = structlog.get_logger(__name__)


class StaleTable(msgspec.Struct, frozen=True):
    """A table of another PXE filter, and our ``interfaces`` that it guards; ``served``: its pxe-filter runs."""

    table: str
    interfaces: tuple[str, ...]
    served: bool

    @property
    def summary(self) -> str:
        if not self.interfaces:
            return f"the firewall has the table inet {self.table} of a PXE filter, but its pxe-filter is not running"
        names = ", ".join(self.interfaces)
        return f"the table inet {self.table} also guards {names}: machines boot there only if that filter is open too"

    @property
    def advice(self) -> str:
        return f"if it is no longer needed: nft delete table inet {self.table}"


def stale_tables(settings: PxeFilterSettings) -> list[StaleTable]:
    """Return the tables of other PXE filters, those that block our interfaces first. ``PxeFilterError``.

    A table stays behind if its network was renamed, or if nftables was removed from the backends. A host may guard
    several networks, so a table on other interfaces is ignored while its pxe-filter runs.
    """
    tables, rules = Tables(), rules_of(settings)
    if not tables.present():
        return []
    ours = {rules.table} if "nftables" in settings.backends else set()
    if ours and tables.has_former_table(rules):
        ours.add(rules.former_table)
    stale = []
    for name in tables.names():
        if name not in ours:
            shared = tuple(interface for interface in rules.interfaces if interface in tables.guarded_interfaces(name))
            stale.append(StaleTable(name, shared, served=is_running(name.removeprefix(TABLE_PREFIX))))
    return sorted(
        (table for table in stale if table.interfaces or not table.served), key=lambda table: not table.interfaces
    )


def warn_of_stale_tables(settings: PxeFilterSettings) -> None:
    """Log the tables that block our interfaces. Without the permission to list them, the filter itself fails later."""
    try:
        for stale in stale_tables(settings):
            if stale.interfaces:
                _log.warning(
                    "another PXE filter guards the same interfaces",
                    table=stale.table,
                    why=stale.summary,
                    advice=stale.advice,
                )
    except PxeFilterError as exc:
        _log.debug("cannot list the filters of other networks", error=str(exc))


def remove_stale_tables(settings: PxeFilterSettings) -> list[str]:
    """Delete the tables whose pxe-filter does not run; return their names. ``PxeFilterError``."""
    tables = Tables()
    removed = [table.table for table in stale_tables(settings) if not table.served]
    for name in removed:
        tables.delete(name)
    return removed
