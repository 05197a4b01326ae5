"""Where clients reach the APIs and the web page, as they are configured."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import msgspec

from ferroscope.config.options import ApiSettings, is_loopback
from ferroscope.http_server.server import addresses, enabled_apis

# Servers listen on these addresses, but no client can connect to them.
_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # they are replaced


def api_url(settings: ApiSettings) -> str:
    """Return the URL of the Bare Metal API as clients reach it, "" if there is none; best from this host."""
    if not settings.bare_metal_port:
        return ""
    host = "127.0.0.1" if "localhost" in settings.host or not settings.host else settings.host[0]
    return url_at(settings, _ANY.get(host, host))


def url_at(settings: ApiSettings, host: str) -> str:
    """Return the URL of the Bare Metal API on a host, unless the configuration has another, public one."""
    if settings.public_url:
        return settings.public_url.rstrip("/")
    scheme = "https" if settings.tls_certificate_file else "http"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{settings.bare_metal_port}"


def page_url(settings: ApiSettings) -> str:
    """Return the URL of the web page, "" if there is none; best from other hosts, because servers have no browser.

    If a proxy serves the API below a path, the page is not there: its links begin with /ui.
    """
    if not settings.bare_metal_port or not settings.enable_ui:
        return ""
    if urlsplit(settings.public_url).path.strip("/"):
        settings = msgspec.structs.replace(settings, public_url="")
    reachable = next((host for host in settings.host if host not in _ANY and not is_loopback(host)), "")
    return f"{url_at(settings, reachable) if reachable else api_url(settings)}/ui"


def announce(settings: ApiSettings, log: Any) -> None:
    """Log where the APIs listen, and warn if other hosts can reach them without authentication."""
    hosts = [f"[{host}]" if ":" in host else host for host in addresses(settings.host)]
    places = {name: ",".join(f"{host}:{port}" for host in hosts) for _, name, port in enabled_apis(settings)}
    log.info("listens", **places)
    if page := page_url(settings):
        log.info("web page", url=page)
    if places and not settings.loopback_only and settings.auth_strategy == "noauth":
        log.warning(
            "authentication is disabled: any client that can reach these ports has full control; "
            "set [api] auth_strategy",
            host=",".join(settings.host),
        )
