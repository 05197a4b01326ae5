"""Where clients reach the APIs and the web page, as they are configured."""

from __future__ import annotations

from typing import Any

from ferroscope.config.options import ApiSettings
from ferroscope.http_server.server import addresses, enabled

# They are listened on, and no client can connect to them.
_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # they are replaced


def api_url(settings: ApiSettings) -> str:
    """Return the URL of the Bare Metal API as clients reach it, "" if there is none; best from this host."""
    if not settings.bare_metal_port:
        return ""
    if settings.public_url:
        return settings.public_url.rstrip("/")
    host = "127.0.0.1" if "localhost" in settings.host or not settings.host else settings.host[0]
    host = _ANY.get(host, host)
    scheme = "https" if settings.tls_certificate_file else "http"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{settings.bare_metal_port}"


def page_url(settings: ApiSettings) -> str:
    """Return the URL of the web page, "" if there is none."""
    url = api_url(settings)
    return f"{url}/ui" if url and settings.enable_ui else ""


def announce(settings: ApiSettings, log: Any) -> None:
    """Log where the APIs listen, and warn if other hosts can reach them without authentication."""
    hosts = [f"[{host}]" if ":" in host else host for host in addresses(settings.host)]
    places = {name: ",".join(f"{host}:{port}" for host in hosts) for _, name, port in enabled(settings)}
    log.info("listens", **places)
    if page := page_url(settings):
        log.info("web page", url=page)
    if places and not settings.loopback_only and settings.auth_strategy == "noauth":
        log.warning(
            "authentication is disabled: any client that can reach these ports has full control; "
            "set [api] auth_strategy",
            host=",".join(settings.host),
        )
