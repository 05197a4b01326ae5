"""Notes on a machine, from its page."""

from __future__ import annotations

from ferroscope.api.baremetal.notes import POLICY
from ferroscope.contrib.ui.page import Redirect, Visit

__all__ = ["POLICY", "act"]


def act(visit: Visit) -> Redirect:
    """Add a note, or delete one; go back to the machine."""
    path = {"node": visit.path["node"]}
    if number := visit.given("remove"):
        visit.call("DELETE /v1/nodes/{node}/notes/{number}", path | {"number": number})
    else:
        visit.call("POST /v1/nodes/{node}/notes", path, body={"text": visit.given("text")})
    return Redirect(f"/ui/machines/{visit.path['node']}")
