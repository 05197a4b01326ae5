"""Accounts and sessions of a simulated service: ``USER`` may do everything, ``VIEWER`` only read."""

from __future__ import annotations

import base64
import hashlib
import secrets
from typing import Any, Final

from tests.support.redfish import PASSWORD, USER
from tests.support.vendors.hardware import BMC_ADDRESS, HOSTNAME, ROOT
from tests.support.vendors.hosting import Answer
from tests.support.vendors.machine import RefusedError
from tests.support.vendors.personality import Personality

VIEWER: Final = "viewer"
SESSIONS: Final = f"{ROOT}/SessionService/Sessions"


class Logins:
    """``sessions`` are those that are open, by token; ``rejected`` counts logins that were wrong.

    ``passwords`` are those of the accounts; ``changes`` counts how often one was written.
    """

    def __init__(self, personality: Personality) -> None:
        self._rules, self._accounts = personality.sessions, personality.accounts
        self.rejected = self.changes = 0
        self.passwords = {USER: PASSWORD, VIEWER: PASSWORD}
        self.demanded = {USER} if personality.accounts.demanded else set[str]()
        self._wrong: dict[str, int] = {}
        self._late = 0
        self.sessions: dict[str, str] = {}

    def occupy(self) -> None:
        """Take all sessions, as other clients do that never log out."""
        while len(self.sessions) < self._rules.limit:
            self.sessions[f"other-{len(self.sessions)}"] = USER

    def account(self, headers: Any) -> str:
        """Return the account of a request, "" if it has no valid credentials."""
        token, basic = headers.get("X-Auth-Token", ""), headers.get("Authorization", "")
        if token:
            return self.sessions.get(token, "")
        if not basic:
            return ""
        user, _, password = base64.b64decode(basic.partition(" ")[2]).decode().partition(":")
        return self._checked(user, password)

    def log_in(self, body: Any) -> Answer:
        """Open a session; ``RefusedError``."""
        if not (account := self._checked(body.get("UserName"), body.get("Password"))):
            raise RefusedError(401, "{base}.ResourceAtUriUnauthorized")
        if len(self.sessions) >= self._rules.limit:
            raise RefusedError(self._rules.status, self._rules.message)
        token = secrets.token_hex(8)
        self.sessions[token] = account
        path = f"{SESSIONS}/{_name(token)}"
        host = {"path": "", "name": f"https://bmc-{HOSTNAME}", "address": f"https://{BMC_ADDRESS}"}
        document = {"@odata.id": path, "Id": _name(token), "Name": "Session", "UserName": account}
        return Answer(201, document, {"X-Auth-Token": token, "Location": host[self._rules.location] + path})

    def log_out(self, name: str) -> Answer:
        """End a session; ``RefusedError``."""
        found = [token for token in self.sessions if _name(token) == name]
        if not found:
            raise RefusedError(404, "{base}.ResourceMissingAtURI", name)
        for token in found:
            del self.sessions[token]
        return Answer(204)

    def _checked(self, user: Any, password: Any) -> str:
        limit = self._accounts.lockout
        locked = limit and self._wrong.get(user, 0) >= limit
        right = user in self.passwords and self._cut(password) == self.passwords[user]
        late = right and self._late > 0
        self._late -= late
        if right and not locked and not late:
            self._wrong.pop(user, None)
            return str(user)
        self._wrong[user] = self._wrong.get(user, 0) + 1
        self.rejected += 1
        return ""

    def _cut(self, password: str) -> str:
        return password[: self._accounts.kept or None]

    def change(self, user: str, password: Any) -> None:
        """Give the account a new password; ``RefusedError``."""
        rules = self._accounts
        if not isinstance(password, str) or not rules.least <= len(password) <= rules.most:
            shown = "." * rules.verbose + (str(password) if rules.echoes else "******")
            raise RefusedError(400, "{base}.PropertyValueFormatError", shown, "Password")
        self.changes += 1
        if rules.ignored:
            return
        self._late = rules.late if self.changes == 1 else 0
        self.passwords[user] = self._cut(password)
        self.demanded.discard(user)


def _name(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()[:12]
