"""HTTP basic authentication against an htpasswd file with bcrypt hashes and, as a third field, roles.

    alice:$2y$10$...:admin
    monitoring:$2y$10$...:reader

A user without roles is a reader. Apache and Ironic read the same file; they ignore the third field.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from ferroscope.api.auth.authentication import Remembered
from ferroscope.api.auth.identity import ROLES, Identity, local
from ferroscope.api.errors import UnauthorizedError, UnavailableError
from ferroscope.config.followed import ConfigFileError, Followed, read_text
from ferroscope.contracts.store import Clock

_SCHEME: Final = "basic "
_BCRYPT: Final = ("$2y$", "$2b$", "$2a$")
_BCRYPT_HASH: Final = 60
_DEFAULT_ROLES: Final = ("reader",)
# Characters of a header's value; longer ones are wrong.
_MAX_HEADER_CHARACTERS: Final = 1024
# bcrypt looks at 72 bytes; its library refuses more.
_BCRYPT_LENGTH: Final = 72
# Seconds since its last use for which a right or wrong password is not hashed again: bcrypt takes a tenth of a second
# of CPU by design. A user who works all day is not affected by others who guess.
_REMEMBERED_SECONDS: Final = 12 * 3600.0
_MAX_REMEMBERED: Final = 1000
# Seconds after a wrong password for which checks of the same name leave one check free for other names.
_ATTACKED_SECONDS: Final = 60.0


class User(NamedTuple):
    """One line of the file."""

    hashed: bytes
    identity: Identity


def parse(text: str) -> Mapping[str, User]:
    """Return the users by name; ``ConfigFileError``, which does not quote the file."""
    users: dict[str, User] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        name, _, rest = line.strip().partition(":")
        hashed, _, fields = rest.partition(":")
        roles = tuple(role.strip() for role in fields.split(",") if role.strip()) or _DEFAULT_ROLES
        if not name or not hashed.startswith(_BCRYPT) or len(hashed) != _BCRYPT_HASH or not hashed.isascii():
            raise ConfigFileError(
                f"line {number}: expected NAME:BCRYPT-HASH[:ROLE,...]; make it with: htpasswd -nB NAME"
            )
        unknown = [role for role in roles if role not in ROLES]
        if unknown:
            raise ConfigFileError(f"line {number}: unknown role {unknown[0][:40]!r}; known: {', '.join(ROLES)}")
        if name in users:
            raise ConfigFileError(f"line {number}: user {name[:40]!r} is listed twice")
        users[name] = User(hashed.encode(), local(name, "http_basic", roles))
    if not users:
        raise ConfigFileError("no user is listed; add one with: ferroscope user add NAME --role admin --file FILE")
    return users


class BasicAuthentication:
    """One instance serves all threads. A changed file is read again; a broken one is logged, and changes nothing."""

    def __init__(self, file: str, clock: Clock, *, threads: int = 4) -> None:
        """Read the file: ``ConfigFileError``, ``OSError``. ``threads``: those of the API, which must never all hash."""
        path = Path(file)
        self._clock = clock
        self._key = secrets.token_bytes(32)
        self._right, self._wrong = (Remembered(_MAX_REMEMBERED, _REMEMBERED_SECONDS, prolong=True) for _ in range(2))
        self._attacked = Remembered(_MAX_REMEMBERED, _ATTACKED_SECONDS, prolong=False)
        self._checks = _PasswordChecks(max(1, threads - 2))
        self._users = Followed("users", [path], lambda: parse(read_text(path)), clock=clock.monotonic)

    def claimed_name(self, headers: Mapping[str, str]) -> str | None:
        """Return the name; "" if it cannot be read, None without credentials of this kind."""
        if not _is_basic(headers):
            return None
        pair = _decode(headers)
        return "" if pair is None else pair[0]

    def remembered_identity(self, headers: Mapping[str, str]) -> Identity | None:
        """Return who sent these credentials if no hashing is needed to know it, otherwise None."""
        pair = _decode(headers)
        user = None if pair is None else self._users.value.get(pair[0])
        if (
            pair is None
            or user is None
            or not self._right.is_remembered(self._key_of(user, *pair), self._clock.monotonic())
        ):
            return None
        return user.identity

    def was_wrong(self, headers: Mapping[str, str]) -> bool:
        """Whether this password was wrong recently, for this user or for an unknown one."""
        pair = _decode(headers)
        if pair is None:
            return True
        user = self._users.value.get(pair[0]) or self._stand_in(pair[0])
        return self._wrong.is_remembered(self._key_of(user, *pair), self._clock.monotonic())

    def identify(self, headers: Mapping[str, str]) -> Identity | None:
        """Return who sent the request; None without credentials of this kind, ``UnauthorizedError`` for wrong ones."""
        if not _is_basic(headers):
            return None
        if (remembered := self.remembered_identity(headers)) is not None:
            return remembered
        pair = _decode(headers)
        if pair is not None and not self.was_wrong(headers):
            name, password = pair
            user = self._users.value.get(name) or self._stand_in(name)
            key = self._key_of(user, name, password)
            tried = self._key_of(user, name, b"")
            attacked = self._attacked.is_remembered(tried, self._clock.monotonic())
            check = partial(_matches, password, user.hashed)
            if self._checks.run(key, check, leave_free=attacked) and user.identity.user == name:
                self._right.add(key, self._clock.monotonic())
                return user.identity
            self._wrong.add(key, self._clock.monotonic())
            self._attacked.add(tried, self._clock.monotonic())
        raise UnauthorizedError("The user name or password is wrong.")

    def _stand_in(self, name: str) -> User:
        """Return the user whose password is checked for an unknown name. It is always the same one, so the answer takes
        as long as for a user who exists, even if hashes differ in cost."""
        users = list(self._users.value.values())
        number = int.from_bytes(hmac.digest(self._key, name.encode(), hashlib.sha256))
        return users[number % len(users)]

    def _key_of(self, user: User, name: str, password: bytes) -> bytes:
        # The hash is part of the key, so that a changed password takes effect at once.
        return hmac.digest(self._key, b"\0".join((name.encode(), user.hashed, password)), hashlib.sha256)


class _PasswordChecks:
    """Runs at most ``limit`` checks at once. Callers who need the same check at the same time share one."""

    def __init__(self, limit: int) -> None:
        self._lock = threading.Lock()
        self._free = limit
        self._spare = 1 if limit > 1 else 0
        self._running: dict[bytes, _Running] = {}

    def run(self, key: bytes, check: Callable[[], bool], *, leave_free: bool) -> bool:
        """Return the result of ``check``; ``UnavailableError`` if too many are running.

        ``leave_free``: so that one is free for others, if there are several.
        """
        with self._lock:
            running = self._running.get(key)
            mine = running is None
            if running is None:
                if self._free <= (self._spare if leave_free else 0):
                    raise UnavailableError("Too many passwords are being checked; try again.", {"Retry-After": "1"})
                self._free -= 1
                running = self._running[key] = _Running()
        if not mine:
            running.done.wait()
            return running.result
        try:
            running.result = check()
        finally:
            with self._lock:
                self._free += 1
                del self._running[key]
            running.done.set()
        return running.result


class _Running:
    """A check that is being made; ``result`` is valid when ``done``."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.result = False


def _matches(password: bytes, hashed: bytes) -> bool:
    import bcrypt

    try:
        return bcrypt.checkpw(password[:_BCRYPT_LENGTH], hashed)
    except ValueError:  # a hash that has the right form only
        return False


def _is_basic(headers: Mapping[str, str]) -> bool:
    return headers.get("authorization", "")[: len(_SCHEME)].lower() == _SCHEME


def _decode(headers: Mapping[str, str]) -> tuple[str, bytes] | None:
    """Return name and password of basic credentials; None if they cannot be right."""
    value = headers.get("authorization", "")
    if len(value) > _MAX_HEADER_CHARACTERS:
        return None
    try:
        raw = base64.b64decode(value[len(_SCHEME) :].strip(), validate=True)
        name, colon, password = raw.partition(b":")
        return (name.decode("utf-8"), password) if colon and b"\0" not in raw else None
    except (binascii.Error, ValueError):
        return None
