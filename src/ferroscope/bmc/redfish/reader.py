"""The one reader of a Redfish service's resources and collections.

A collection may have pages (``Members@odata.nextLink``), and a part may be linked from several places; one part that
cannot be read is noted, and does not end the rest. Links lead to the BMC's own address only, whatever host they name,
and a page that was read before ends its collection. Source: DSP0266, 7.7; DMTF/Redfish-Mockup-Server#43.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urljoin

from sushy import exceptions

from ferroscope.bmc.redfish.connector import is_partial, local
from ferroscope.bmc.redfish.failures import is_rejected_login, is_temporary
from ferroscope.contracts.errors import BmcError
from ferroscope.core import json_safety
from ferroscope.core.model import Document
from ferroscope.core.values import one_line
from ferroscope.hardware.parts import mapping, number
from ferroscope.remote.command_fence import TooLateError
from ferroscope.remote.deadline import current

MAX_PAGES: Final = 64
_MAX_REQUESTS: Final = 500
_MAX_FAILURES: Final = 5
_MAX_NOTED: Final = 20
# Seconds for one resource; a service that hangs on one may still answer for the others.
_RESOURCE_SECONDS: Final = 10.0
_MAX_PATH_CHARACTERS: Final = 500
_MAX_SHOWN_CHARACTERS: Final = 120
_ROOT: Final = "redfish/"
_NEXT: Final = frozenset({"members@odata.nextlink", "@odata.nextlink"})
_GONE: Final = frozenset({"absent", "disabled"})
_ABSENT: Final = frozenset({"absent"})


class Reader:
    """One walk through a service; ``connector`` is sushy's, which sends nothing to another address.

    ``patient``: errors that may pass are raised, so that the call is tried again, instead of noted. ``failures`` are
    the resources that could not be read, and why; ``error`` is what the last of them has raised. ``complete``: none was
    left out for lack of time or requests.
    """

    def __init__(self, connector: Any, requests: int = _MAX_REQUESTS, *, patient: bool = False) -> None:
        self._connector = connector
        self._left = requests
        self._patient = patient
        self._failed = 0  # in a row
        self._read: dict[str, Document] = {}
        self.failures: list[str] = []
        self.error: Exception | None = None
        self.complete = True

    def get(self, link: Any) -> Document:
        """Return the resource that ``link`` refers to; empty if it cannot be read. It is read once."""
        path = path_of(link)
        if not path:
            return {}
        key = path_key(path)
        if key not in self._read:
            if not self._left or self._failed >= _MAX_FAILURES or not current().remaining():
                self.complete = False
                return {}
            self._left -= 1
            self._read[key] = self._fetch(path)
        return self._read[key]

    def _fetch(self, path: str) -> Document:
        try:
            resource = mapping(json_safety.decode(self._connector.get(path=path, timeout=_RESOURCE_SECONDS).content))
        except TooLateError:
            raise
        except BmcError as exc:  # a redirect to elsewhere
            self.error = exc
            self._note(path, one_line(str(exc), _MAX_SHOWN_CHARACTERS))
            return {}
        except exceptions.HTTPError as exc:
            rejected = is_rejected_login(exc)
            if self._patient and (rejected or is_temporary(exc)):
                raise
            self.error = exc
            # Many 401 may lock the account.
            self._failed = _MAX_FAILURES if rejected else self._failed + (exc.status_code >= 500)
            self._note(path, f"HTTP {exc.status_code}")
            return {}
        except Exception as exc:  # the boundary: connections fail, and parsers stumble, in any way
            self.error = exc
            self._failed += 1
            if self._patient and self._failed >= _MAX_FAILURES:
                raise
            self._note(path, type(exc).__name__)
            return {}
        self._failed = 0
        if is_partial(resource):
            self._note(path, "in part, with an error")
        return {"@odata.id": path} | resource if resource else {}

    def _note(self, path: str, why: str) -> None:
        if len(self.failures) < _MAX_NOTED:
            self.failures.append(f"{one_line(path, _MAX_SHOWN_CHARACTERS)}: {why}")

    def resources(self, links: Any, limit: int) -> Iterator[Document]:
        """Yield the resources in a list of links, or of resources that the service has put there itself; each once."""
        seen: set[str] = set()
        for link in (links if isinstance(links, list) else [links])[:limit]:
            path, embedded = path_of(link), mapping(link)
            if path_key(path) in seen:
                continue
            seen.update({path_key(path)} - {""})
            if resource := embedded if len(embedded) > 1 else self.get(link):
                yield resource

    def members(self, link: Any, limit: int) -> Iterator[Document]:
        """Yield the first ``limit`` members of a collection, each once."""
        yield from self.resources(self.links(link)[:limit], limit)

    def links(self, link: Any) -> list[Any]:
        """Return the links of a collection, or the members themselves if the service puts them there; all pages."""
        links: list[Any] = []
        page: Document = {}
        for page in self.pages(self.get(link), path_of(link)):
            links += page_members(page)
        count = number(page.get("Members@odata.count"))
        if count is not None and count > len(links) > 0:
            self._note(path_of(link), f"lists {len(links)} of its {count:g} members")
        return links

    def array(self, resource: Document, name: str) -> list[Any]:
        """Return the links in an array of a resource, which may go on elsewhere, or in a collection in its place."""
        value = resource.get(name)
        if not isinstance(value, list):
            return self.links(value)
        first = {"Members": value, "@odata.nextLink": resource.get(f"{name}@odata.nextLink")}
        return [
            link
            for page in self.pages(first, path_of(resource))
            for link in page_members({"Members": page.get(name)} | page)
        ]

    def pages(self, page: Document, at: str = "", limit: int = MAX_PAGES) -> Iterator[Document]:
        """Yield a collection's page, which is ``at`` this path, and those that follow, at most ``limit``, each once."""
        at = at or path_of(page)
        seen = {at}
        for _ in range(limit):
            yield page
            at = following(page, at)
            page = self.get(at) if at not in seen else {}
            if not page:
                return
            seen.add(at)


def following(page: Document, at: str) -> str:
    """Return the path of the next page, "" if there is none; it may be written relative to this page."""
    names = (name for name in page if name.lower() in _NEXT)
    link = next((value for name in names if (value := page[name])), None)
    link = mapping(link).get("@odata.id", link)
    if not isinstance(link, str):
        return ""
    return path_of(link) or path_of(urljoin(at.partition("?")[0].rstrip("/"), local(link)))


def page_members(page: Document) -> list[Any]:
    """Return the members on a page of a collection."""
    members = page.get("Members")
    # DMTF/libredfish#27: a single member without its list.
    return members if isinstance(members, list) else [members] if isinstance(members, dict) else []


def path_of(link: Any) -> str:
    """Return the path that a link refers to, "" if it is none."""
    value = mapping(link).get("@odata.id", link)
    if not isinstance(value, str) or len(value) > _MAX_PATH_CHARACTERS or not value or "\0" in value:
        return ""
    path = local(value.strip().partition("#")[0])
    return path if path.startswith("/") else f"/{path}" if path.startswith(_ROOT) else ""


def path_key(path: str) -> str:
    """Return what the paths of one resource have in common: some services end them with a slash here and there."""
    return path.rstrip("/")


def is_absent(resource: Document) -> bool:
    """Whether a part is not there: an empty bay, slot or socket."""
    return _state(resource) in _ABSENT


def is_gone(resource: Document) -> bool:
    """Whether a part is not there, or is switched off."""
    return _state(resource) in _GONE


def _state(resource: Document) -> str:
    return str(mapping(resource.get("Status")).get("State")).lower()
