"""Searches that the visitor keeps under names, beside the list of machines."""

from __future__ import annotations

import shlex
from typing import Any
from urllib.parse import parse_qs, quote, urlencode

from ferroscope.api.errors import BadRequestError
from ferroscope.contrib.ui import render
from ferroscope.contrib.ui.machine_list import MachineSelection
from ferroscope.contrib.ui.page import Redirect, Visit


def list_searches(visit: Visit) -> list[dict[str, str]]:
    """Return the saved searches of the visitor, with the address of each."""
    view = visit.call_if_possible("GET /v1/saved_searches")
    return (
        [] if view is None else [{"name": search["name"], "link": _link(search)} for search in view["saved_searches"]]
    )


def _link(search: dict[str, Any]) -> str:
    parameters = {name: values for name, values in parse_qs(search["view"]).items() if name in ("sort", "dir", "c")}
    return render.link("/ui/machines", q=search["q"], **parameters)


def command(wanted: MachineSelection) -> str:
    """Return the command that finds the same machines."""
    return f"ferroscope search {shlex.quote(wanted.search)}" if wanted.search else "ferroscope node list"


def act(visit: Visit) -> Redirect:
    """Save the search of the form under a name, or delete a saved one; go back to the list."""
    name = visit.given("name") or visit.given("remove")
    if not name:
        raise BadRequestError("Enter a name for the search.")
    path = {"search": name}
    if visit.given("remove"):
        visit.call("DELETE /v1/saved_searches/{search}", path)
    else:
        view = {
            parameter: visit.form[parameter] for parameter in ("sort", "dir", "c") if any(visit.form.get(parameter, ()))
        }
        body = {"q": MachineSelection.of(visit.given).search, "view": urlencode(view, doseq=True, quote_via=quote)}
        visit.call("PUT /v1/saved_searches/{search}", path, body=body)
    back = visit.given("back")
    return Redirect(back if back.startswith("/ui/machines") else "/ui/machines")
