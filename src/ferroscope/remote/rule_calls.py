"""``contracts.remote.Web`` on urllib3: certificates are verified, redirects are answers, bodies are left unread.

A call ends within its time whatever the other side does, though it send a byte now and then.
"""

from __future__ import annotations

from collections.abc import Mapping

import urllib3

from ferroscope.contracts.remote import WebError
from ferroscope.remote.bounded_http import Deadline, DeadlineError, bound


class WebClient:
    """A new connection for each request: a call is rare, and nothing is to be kept of it."""

    def get(self, url: str, *, headers: Mapping[str, str], timeout: float, proxy: str | None) -> int:
        manager = urllib3.ProxyManager(proxy, retries=False) if proxy else urllib3.PoolManager(retries=False)
        bound(manager)
        with Deadline(timeout) as deadline:
            try:
                answer = manager.request(
                    "GET", url, headers=dict(headers), timeout=timeout, redirect=False, preload_content=False
                )
                status = answer.status
                answer.close()
                deadline.left()
                return int(status)
            except (urllib3.exceptions.HTTPError, ValueError, OSError, DeadlineError) as exc:
                why = f"no answer within {timeout:g} s" if deadline.expired else type(exc).__name__
                raise WebError(why) from exc
            finally:
                manager.clear()
