"""Adds the pages to the api, if they are enabled."""

from __future__ import annotations

from typing import Any

import falcon

from ferroscope.api.http.context import ApiContext


def add_pages(app: falcon.App[Any, Any], context: ApiContext) -> None:
    """See ``api.http.route``; without ``[api] enable_ui``, nothing of the web page is imported."""
    if not context.settings.api.enable_ui:
        return
    from ferroscope.contrib.ui import app as ui
    from ferroscope.contrib.ui import render

    ui.add_pages(app, context)
    render.prepare()
