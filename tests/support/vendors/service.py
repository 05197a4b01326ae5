"""A Redfish service over HTTP or HTTPS with the personality of a vendor, in this process."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from ferroscope.core.model import Node
from tests.support.redfish import PASSWORD, USER
from tests.support.vendors.accounts import add_accounts, path_of
from tests.support.vendors.documents import documents
from tests.support.vendors.hardware import ROOT, Documents
from tests.support.vendors.hosting import Answer, hosted
from tests.support.vendors.logins import SESSIONS, Logins
from tests.support.vendors.machine import Machine, RefusedError
from tests.support.vendors.personality import Personality

_OPEN: Final = frozenset({"/redfish", ROOT, f"{ROOT}/odata", f"{ROOT}/$metadata"})


class Asked(NamedTuple):
    """A request; ``account`` is "" if it had no valid credentials."""

    method: str
    path: str
    account: str
    body: Any


class Service:
    """The service at ``url``. ``asked`` are the requests so far."""

    url: str

    def __init__(self, personality: Personality) -> None:
        self.personality = personality
        self.machine = Machine(personality)
        self.logins = Logins(personality)
        self.asked: list[Asked] = []
        # Called with method and path before a request is carried out, and before it is answered.
        self.arrives: Callable[[str, str], None] = lambda _method, _path: None
        self.leaves: Callable[[str, str], None] = lambda _method, _path: None
        self._stale = personality.etags.stale
        self._missing = personality.power.missing
        self._lock = threading.RLock()

    @property
    def system(self) -> str:
        """The path of the system that is the host."""
        return f"{ROOT}/Systems/{self.personality.system}"

    def answer(self, method: str, path: str, headers: Any, body: Any) -> Answer:
        """Answer one request."""
        at, _, query = path.partition("?")
        at = (at.rstrip("/") or "/") + (f"?{query}" if query else "")
        self.arrives(method, at)
        with self._lock:
            try:
                account = self.logins.account(headers)
                self.asked.append(Asked(method, at, account, body))
                found = self._answer(method, at, account, headers, body)
            except RefusedError as exc:
                found = self._refusal(exc)
        self.leaves(method, at)
        return found

    def _answer(self, method: str, path: str, account: str, headers: Any, body: Any) -> Answer:
        if path == SESSIONS and method == "POST":
            return self.logins.log_in(body)
        if path not in _OPEN and not account:
            raise RefusedError(401, "{base}.NoValidSession")
        if path.startswith(f"{SESSIONS}/") and method == "DELETE":
            return self.logins.log_out(path.rpartition("/")[2])
        own = path_of(self.personality, account) if account else ""
        if path not in _OPEN and account in self.logins.demanded and path != own:
            raise RefusedError(403, "{base}.PasswordChangeRequired", own)
        if method != "GET" and account != USER:
            raise RefusedError(403, "{base}.InsufficientPrivilege")
        settling = self.machine.settle() if method == "GET" and path == self.system else None
        if settling is not None:
            return self._unsettled(settling)
        if method == "GET":
            return self._read(path)
        return self._write(method, path, headers, body if isinstance(body, dict) else {}, bare=body is None)

    def _unsettled(self, kind: str) -> Answer:
        """Answer as a BMC that is busy with the reset of its machine."""
        pause = self.personality.power.retry_after
        headers = {} if pause is None else {"Retry-After": str(pause)}
        if kind == "empty":
            return Answer(200, b"")
        if kind == "page":
            return Answer(200, b"<html><body>Please wait</body></html>", {"Content-Type": "text/html"})
        if kind == "partial":
            shown = {name: part for name, part in self._documents(self.system)[self.system].items() if name != "Boot"}
            error = self._refusal(RefusedError(500, "{base}.InternalError"))
            return error._replace(body=self._linked(shown) | error.body)
        if kind == "404":
            return self._refusal(RefusedError(404, "{base}.ResourceMissingAtURI", self.system))
        if kind == "not ready":
            return self._refusal(RefusedError(503, "{own}.ResourceNotReadyRetry", "30"))._replace(headers=headers)
        return self._refusal(RefusedError(503, "{base}.ServiceTemporarilyUnavailable", "30"))._replace(headers=headers)

    def _documents(self, path: str) -> Documents:
        asked = path == self.system
        found = documents(self.machine, self.machine.look() if asked else self.machine.power)
        return add_accounts(found, self.personality, self.logins)

    def _read(self, path: str) -> Answer:
        document = self._documents(path).get(path)
        if document is None:
            raise RefusedError(404, "{base}.ResourceMissingAtURI", path)
        shown = self._linked(document)
        headers = {"Allow": "GET, HEAD, PATCH" if self._patched(path) else "GET, HEAD"}
        if self.personality.etags.style != "none":
            headers["ETag"] = self._etag(path)
            shown["@odata.etag"] = headers["ETag"]
        return Answer(200, shown, headers)

    def _patched(self, path: str) -> bool:
        drive = self._drive(path)
        settings = f"{self.system}/{self.personality.boot.settings}".rstrip("/")
        if path == path_of(self.personality, USER):
            return True
        return path == settings or (drive is not None and self.machine.drives[drive].slot.insert == "patch")

    def _drive(self, path: str) -> str | None:
        below, _, name = path.partition("/VirtualMedia/")
        owner = "Systems" if below == self.system else "Managers"
        here = below in (self.system, f"{ROOT}/Managers/{self.personality.manager}")
        known = here and owner == self.personality.media.below and name in self.machine.drives
        return name if known else None

    def _etag(self, path: str) -> str:
        """Return the ETag of what is at ``path`` now; it changes with what the machine is and has."""
        state = (self.machine.power, self.machine.override, self.machine.pending, list(self.machine.drives.values()))
        digest = hashlib.sha256(repr((path, state)).encode()).hexdigest()[:8]
        style = self.personality.etags.style
        if style == "number":
            return f'"{int(digest, 16)}"'
        return f'W/"{digest}"' if style == "weak" else f'"{digest}"'

    def _check_etag(self, path: str, headers: Any) -> None:
        rules, given = self.personality.etags, headers.get("If-Match")
        if rules.style == "none" or (given is None and not rules.missing):
            return
        if given is None:
            message = "{own}.PreconditionHeaderMissing" if rules.missing == 428 else "{base}.PreconditionFailed"
            raise RefusedError(rules.missing, message)
        if given.replace("W/", "").strip('"') not in ("*", self._etag(path).replace("W/", "").strip('"')):
            raise RefusedError(412, "{base}.PreconditionFailed")
        if self._stale:
            self._stale -= 1
            raise RefusedError(412, "{base}.PreconditionFailed")

    def _write(self, method: str, path: str, headers: Any, body: dict[str, Any], *, bare: bool) -> Answer:
        if method == "PATCH":
            return self._patch(path, headers, body)
        target, _, action = path.partition("/Actions/")
        if headers.get("If-Match"):  # an action is no change of a resource
            raise RefusedError(412, "{base}.PreconditionFailed")
        if action == "ManagerAccount.ChangePassword" and target == path_of(self.personality, USER):
            if body.get("SessionAccountPassword") != self.logins.passwords[USER]:
                raise RefusedError(400, "{base}.ActionParameterValueError", "SessionAccountPassword")
            self.logins.change(USER, body.get("NewPassword"))
            return Answer(204)
        if action == "ComputerSystem.Reset" and target == self.system:
            if self._missing:
                self._missing -= 1
                raise RefusedError(404, "{base}.ResourceNotFound", "Set", "Reset")
            self.machine.reset(str(body.get("ResetType")))
            return Answer(204)
        drive = self._drive(target)
        if drive is not None and action == "VirtualMedia.InsertMedia":
            self.machine.insert(drive, body, by="action")
            return Answer(204)
        if drive is not None and action == "VirtualMedia.EjectMedia":
            if bare and not self.personality.media.bare_eject:
                raise RefusedError(400, "{base}.MalformedJSON")
            self.machine.eject(drive)
            return Answer(204)
        raise RefusedError(405, "{base}.OperationNotAllowed")

    def _patch(self, path: str, headers: Any, body: dict[str, Any]) -> Answer:
        drive, settings = self._drive(path), self.personality.boot.settings
        if path == path_of(self.personality, USER) and set(body) == {"Password"}:
            if self.personality.accounts.action:
                raise RefusedError(400, "{base}.PropertyNotWritable", "Password")
            self._check_etag(path, headers)
            self.logins.change(USER, body["Password"])
            return Answer(self.personality.accounts.status, None if self.personality.accounts.status == 204 else {})
        if drive is not None:
            self._check_etag(path, headers)
            self.machine.insert(drive, body, by="patch")
            return Answer(200, {})
        if path in (self.system, f"{self.system}/{settings}") and set(body) == {"Boot"}:
            self._check_etag(path, headers)
            self.machine.write_boot(body["Boot"], to_settings=path != self.system)
            return Answer(200, {})
        raise RefusedError(405, "{base}.OperationNotAllowed")

    def _refusal(self, error: RefusedError) -> Answer:
        of = self.personality
        message = of.message(error.message)
        entry = {
            "@odata.type": "#Message.v1_1_1.Message",
            "MessageId": message,
            "MessageArgs": list(error.arguments),
            "Message": f"Refused: {message.rpartition('.')[2]} ({', '.join(error.arguments)}).",
            "Severity": "Warning",
        }
        code = of.error_code or f"{of.base}.GeneralError"
        return Answer(error.status, {"error": {"code": code, "message": "See.", "@Message.ExtendedInfo": [entry]}})

    def _linked(self, value: Any) -> Any:
        """Return a document with links as this service spells them."""
        if isinstance(value, dict):
            return {
                key: item + "/"
                if key == "@odata.id" and self.personality.slash and "?" not in item
                else self._linked(item)
                for key, item in value.items()
            }
        return [self._linked(item) for item in value] if isinstance(value, list) else value


@contextmanager
def serving(personality: Personality, certificate: tuple[Path, Path] | None = None) -> Iterator[Service]:
    """Run a service until the end of the block. ``certificate``: its file and its key's, for https."""
    service = Service(personality)
    with hosted(service, certificate) as service.url:
        yield service


def node_of(service: Service, *, user: str = USER, password: str = PASSWORD, **more: Any) -> Node:
    """Return the node of the machine behind a service; ``more`` is added to its ``driver_info``."""
    info: dict[str, Any] = {
        "redfish_address": service.url,
        "redfish_username": user,
        "redfish_password": password,
    }
    if service.personality.other_systems:
        info["redfish_system_id"] = service.system
    return Node(uuid="aaaaaaaa-0000-4000-8000-000000000001", name="machine", driver="redfish", driver_info=info | more)
