"""The service itself: members, leases, PXE filters and the queue; the page to watch while a host fails."""

from __future__ import annotations

from typing import Any, Final

from ferroscope.contrib.ui import naming
from ferroscope.contrib.ui.fleet import STATUS, add_links
from ferroscope.contrib.ui.page import HtmlPage, Visit
from ferroscope_client.core.obstacles import count_slots

# Seconds for which viewers share a view: less than the page's polling interval.
_CACHE_SECONDS: Final = 1.0


def show(visit: Visit) -> HtmlPage:
    """Show the status of the service."""
    data = visit.remembered("service", _CACHE_SECONDS, lambda: _view(visit)) if visit.may(STATUS) else _view(visit)
    return HtmlPage(template="service.html", title="Service", data=data)


def _view(visit: Visit) -> dict[str, Any]:
    """Return the status for display; ``ForbiddenError``."""
    status = naming.status(visit)
    # Constantly changing values are left out or rounded, so an unchanged service has an unchanged page.
    members = [
        {name: member[name] for name in ("name", "host", "pid", "role", "alive", "started_at", "version")}
        # The status is stored as one text only as far as a column of it goes.
        | {"status": "; ".join(dict.fromkeys(member["loops"].values())) or member["status"]}
        | dict(zip(("slots", "busy"), count_slots(member["lanes"].values()), strict=True))
        for member in status["members"]
    ]
    leases = [{name: lease[name] for name in ("name", "holder", "epoch")} for lease in status["leases"]]
    filters = [
        {
            name: pxe_filter[name]
            for name in ("network", "open", "host", "holder", "epoch", "allowed", "denied", "missing")
        }
        for pxe_filter in status["pxe_filters"]
    ]
    queue = [lane | {"oldest": 5 * round(lane["oldest"] / 5)} for lane in status["queue"]]
    return {
        "problems": add_links(status["problems"]),
        "database": status["database"] | {"clock_skew": round(status["database"]["clock_skew"], 1) + 0.0},
        "version": status["version"],
        "members": sorted(members, key=lambda member: (not member["alive"], member["role"], member["name"])),
        "leases": leases,
        "more_leases": status["leases_total"] - len(leases),
        "filters": filters,
        "queue": queue,
    }
