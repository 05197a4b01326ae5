"""A personality that was recorded: a Redfish service that answers what a file of ``ferroscope bmc report`` says.

Only what was read can be read; it opens sessions if the BMC did. So a report of a BMC that the driver does not
understand becomes a test: keep the file next to it, and give its content to ``replaying``.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from ferroscope.core.model import Node
from tests.support.redfish import PASSWORD, USER
from tests.support.vendors.hosting import Answer, hosted

_FORMAT: Final = "ferroscope-bmc-report-1"
_HTML: Final = b"<html></html>"


class Recording:
    """The service of one report, at ``url``. Of several answers to a request, the last one counts."""

    url: str

    def __init__(self, report: dict[str, Any]) -> None:
        assert report["format"] == _FORMAT, report["format"]
        self.system: str | None = report["system"]
        self._answers = {(one["method"], _key(one["path"])): one for one in report["answers"] if "status" in one}
        login = next((one for one in report["answers"] if one["method"] == "POST"), None)
        self._sessions = login is not None and login["status"] < 300
        self._login = login
        self._tokens: set[str] = set()

    def answer(self, method: str, path: str, headers: Any, body: Any) -> Answer:
        """Answer as the BMC did."""
        at = _key(path)
        if method == "POST" and self._login is not None and at == _key(self._login["path"]):
            return self._opened(at)
        if method == "DELETE" and at.rpartition("/")[2] in self._tokens:
            self._tokens.discard(at.rpartition("/")[2])
            return Answer(204)
        known = self._answers.get((method, at))
        if known is None:
            return Answer(404 if method == "GET" else 405, {"error": {"code": "Base.1.0.GeneralError"}})
        if at != "/redfish/v1" and not self._is_allowed(headers):
            return Answer(401, {"error": {"code": "Base.1.0.GeneralError"}})
        sent = {name: value for name, value in known["headers"].items() if name.lower() not in ("location", "date")}
        return Answer(known["status"], known["body"] or (b"" if known["kind"] == "empty" else _HTML), sent)

    def _opened(self, at: str) -> Answer:
        if not self._sessions:
            assert self._login is not None
            return Answer(self._login["status"], self._login["body"])
        token = secrets.token_hex(8)
        self._tokens.add(token)
        return Answer(201, {"Id": token, "Name": "Session"}, {"X-Auth-Token": token, "Location": f"{at}/{token}"})

    def _is_allowed(self, headers: Any) -> bool:
        return headers.get("X-Auth-Token", "") in self._tokens or bool(headers.get("Authorization"))


def _key(path: str) -> str:
    place, _, query = path.partition("?")
    return place.rstrip("/") + (f"?{query}" if query else "")


@contextmanager
def replaying(report: dict[str, Any]) -> Iterator[Recording]:
    """Run the service of a report until the end of the block."""
    recording = Recording(report)
    with hosted(recording) as recording.url:
        yield recording


def recorded_node(recording: Recording) -> Node:
    """Return the node of the machine in a recording."""
    info = {"redfish_address": recording.url, "redfish_username": USER, "redfish_password": PASSWORD}
    more = {} if recording.system is None else {"redfish_system_id": recording.system}
    return Node(uuid="aaaaaaaa-0000-4000-8000-000000000002", name="recorded", driver="redfish", driver_info=info | more)
