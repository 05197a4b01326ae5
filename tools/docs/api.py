"""The OpenAPI document of both APIs, from the routes table."""

from __future__ import annotations

import json


def render() -> str:
    """Return the document as indented JSON."""
    from ferroscope.api.http.openapi import document
    from ferroscope.api.routes import ROUTES

    return json.dumps(document(ROUTES), indent=2, ensure_ascii=False) + "\n"
