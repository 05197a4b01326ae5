"""Pages that other packages add to the application, with an entry point in the group ``ferroscope.pages``.

Its value is an ``AddPages``. Pages are no routes of the table: they are not described, and decide themselves who may
see them. They get all they show by calling routes (``in_process``), whose policies then decide.
"""

from __future__ import annotations

from typing import Any, Protocol

import falcon

from ferroscope.api.http.route import ApiContext


class AddPages(Protocol):
    def __call__(self, app: falcon.App[Any, Any], context: ApiContext, /) -> None:
        """Add the pages to the application, or none if they are disabled; import what they need only then."""
