"""``ports.web.Web`` on urllib3: certificates are verified, redirects are answers, bodies are left unread."""

from __future__ import annotations

from collections.abc import Mapping

import urllib3

from ferroscope.ports.web import WebError


class WebClient:
    """A new connection for each request: a call is rare, and nothing is to be kept of it."""

    def get(self, url: str, *, headers: Mapping[str, str], timeout: float, proxy: str | None) -> int:
        limits = urllib3.Timeout(total=timeout)
        manager = urllib3.ProxyManager(proxy, retries=False) if proxy else urllib3.PoolManager(retries=False)
        try:
            answer = manager.request(
                "GET", url, headers=dict(headers), timeout=limits, redirect=False, preload_content=False
            )
            status = answer.status
            answer.close()
            return int(status)
        except (urllib3.exceptions.HTTPError, ValueError) as exc:
            raise WebError(type(exc).__name__) from exc
        finally:
            manager.clear()
