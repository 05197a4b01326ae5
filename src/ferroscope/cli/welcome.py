"""What ``ferroscope all`` says on a terminal once it is ready: where the page is, what to try first, where the data is.

The log says the same, for services (``api.urls.announce``).
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from ferroscope.api.urls import api_url, page_url
from ferroscope.config.options import SIMULATED, Settings
from ferroscope.db import location

_DEFAULT_PORT: Final = 6385
_EXAMPLE: Final = "ferroscope node import machines.csv, or ferroscope bmc scan NETWORK"


def lines(settings: Settings) -> list[str]:
    """Return what a person wants to know who has just started the service."""
    url, simulated = api_url(settings.api), set(SIMULATED) & set(settings.drivers.enabled)
    other = "" if urlsplit(url).port == _DEFAULT_PORT and "127.0.0.1" in url else f" (export FERROSCOPE_URL={url})"
    rows = [("web page", page_url(settings.api))]
    if url:
        rows.append(("try", ("ferroscope sim --nodes 50 --enroll" if simulated else _EXAMPLE) + other))
    rows.append(("data", location.place(settings.database)))
    return [f"{name:<8}  {text}" for name, text in rows if text]
