"""Reads resources that a Redfish service need not have, such as sensors and logs: whatever it answers, nothing fails.

What is missing, refused, malformed or on another address counts as empty. Each resource is read once. Reading ends when
the call's time or the number of requests is used up, or the service has stopped to answer; ``complete`` tells.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from sushy import exceptions

from ferroscope.core import json_safety
from ferroscope.core.model import Document
from ferroscope.hardware.parts import mapping
from ferroscope.remote.command_fence import TooLateError
from ferroscope.remote.deadline import current

_MAX_REQUESTS: Final = 250
_MAX_FAILURES: Final = 5
_MAX_PAGES: Final = 10
# Seconds for one resource; a service that hangs on one may still answer for the others.
_SECONDS: Final = 10.0
_LONGEST_PATH: Final = 500


class Reader:
    """One walk through a service; ``connector`` is sushy's, which sends nothing to another address."""

    def __init__(self, connector: Any, requests: int = _MAX_REQUESTS) -> None:
        self._connector = connector
        self._left = requests
        self._failures = 0
        self._read: set[str] = set()
        self.complete = True

    def get(self, link: Any) -> Document:
        """Return the resource that ``link`` refers to; empty if it cannot be read, or was read before."""
        path = mapping(link).get("@odata.id", link)
        if not isinstance(path, str) or not path.startswith("/") or path.startswith("//") or len(path) > _LONGEST_PATH:
            return {}
        path = path.partition("#")[0]
        if path in self._read:
            return {}
        if not self._left or self._failures >= _MAX_FAILURES or not current().remaining():
            self.complete = False
            return {}
        self._left -= 1
        self._read.add(path)
        try:
            found = mapping(json_safety.decode(self._connector.get(path=path, timeout=_SECONDS).content))
        except TooLateError:
            raise
        except exceptions.AccessError as exc:
            # Each 401 makes sushy log in again; many of them may lock the account.
            self._failures = _MAX_FAILURES if exc.status_code == 401 else self._failures
            return {}
        except exceptions.HTTPError as exc:
            self._failures += exc.status_code >= 500
            return {}
        except Exception:  # noqa: BLE001  # the boundary: connections fail, and parsers stumble, in any way
            self._failures += 1
            return {}
        self._failures = 0
        return found

    def each(self, links: Any, most: int) -> Iterator[Document]:
        """Yield the resources in a list of links, or of resources that the service has put there itself."""
        for one in links[:most] if isinstance(links, list) else ():
            known = mapping(one)
            if found := known if len(known) > 1 else self.get(one):
                yield found

    def members(self, link: Any, most: int) -> Iterator[Document]:
        """Yield the first ``most`` members of a collection."""
        for page in self.pages(self.get(link)):
            for one in self.each(page.get("Members"), most):
                yield one
                most -= 1
            if most <= 0:
                return

    def pages(self, page: Document) -> Iterator[Document]:
        """Yield a collection's page and those that follow."""
        for _ in range(_MAX_PAGES):
            yield page
            page = self.get(page.get("Members@odata.nextLink"))
            if not page:
                return
