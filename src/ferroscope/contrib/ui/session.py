"""Sessions of browsers: a cookie with a random secret, and what is derived from it.

Every browser gets a cookie; from its secret follow the token that each form must carry (CSRF) and the ID and the key of
the stored session, which exists only after a login (``core.credentials.WebSession``). A login makes a new secret. The
stored credentials are those that an API client would send. Each request is authenticated with them again, so a changed
password, role or token takes effect as in the API.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import falcon
import msgspec

from ferroscope.api.auth.identity import Identity
from ferroscope.api.errors import ApiError, BadRequestError, ForbiddenError, UnauthorizedError
from ferroscope.api.http.context import ApiContext
from ferroscope.contrib.ui import audit
from ferroscope.contrib.ui.audit import LoginAudit
from ferroscope.core.credentials import WebSession
from ferroscope.db import Transaction
from ferroscope.http_server.agreed import NAMES
from ferroscope_client.core import json_safety

# A __Host- cookie cannot be set by another host of the domain, nor over plain HTTP. Source: RFC 6265bis.
_PLAIN: Final = "ferroscope"
_SECURE: Final = "__Host-ferroscope"
_SECRET: Final = re.compile(r"[A-Za-z0-9_-]{43}")
_NONCE_BYTES: Final = 12
_CREDENTIALS: Final = ("HTTP_AUTHORIZATION", "HTTP_X_AUTH_TOKEN", "HTTP_X_SERVICE_TOKEN", NAMES)
_MAX_USER_CHARACTERS: Final = 255
MAX_SESSIONS: Final = 100
"""Sessions of one user; a login beyond that ends the oldest one."""
# Characters of a host name in an error message.
_MAX_SHOWN: Final = 100
_SEALED_SECONDS: Final = 3600.0
# A working day: a user who logs in in the morning does so once.
SESSION_SECONDS: Final = 8 * 3600.0


class Visitor(msgspec.Struct, frozen=True, kw_only=True):
    """A browser; ``identity`` is None if it has not logged in, ``session`` whether it has a stored session."""

    secret: str
    is_new: bool
    identity: Identity | None = None
    session: bool = False

    @property
    def csrf(self) -> str:
        """The token that its forms carry."""
        return derive_key(self.secret, "csrf").hex()


def new_secret() -> str:
    """Return the random secret of a new cookie."""
    return secrets.token_urlsafe(32)


def derive_key(secret: str, purpose: str) -> bytes:
    """Return 32 bytes that follow from the secret, different ones for each purpose."""
    return hmac.digest(secret.encode(), f"ferroscope ui {purpose}".encode(), hashlib.sha256)


def is_secure(context: ApiContext, req: falcon.Request) -> bool:
    """Whether the browser reaches us over HTTPS."""
    return bool(req.env.get("wsgi.url_scheme") == "https" or context.settings.api.public_url.startswith("https:"))


def visitor(context: ApiContext, req: falcon.Request) -> Visitor:
    """Return who sent the request: by its session, or by credentials that it carries itself.

    ``StoreUnavailableError``, and what ``Authentication.identify`` raises, except for a session that is over.
    """
    cookies = req.get_cookie_values(_SECURE if is_secure(context, req) else _PLAIN) or [""]
    is_secret = _SECRET.fullmatch(cookies[0]) is not None
    secret = cookies[0] if is_secret else new_secret()
    visitor_of_cookie = Visitor(secret=secret, is_new=not is_secret)
    if context.access.authentication.is_disabled:
        return msgspec.structs.replace(visitor_of_cookie, identity=context.access.authentication.identify({}))
    stored = _read_stored(context, secret) if is_secret else None
    if stored is not None:
        try:
            identity = context.access.authentication.identify(_anonymous(req.env) | stored)
        except UnauthorizedError:
            end(context, secret)
            audit.session_ended(context, req, stored)
            return visitor_of_cookie
        return msgspec.structs.replace(visitor_of_cookie, identity=identity, session=True)
    if any(name in req.env for name in _CREDENTIALS):
        try:
            identity = context.access.authentication.identify(req.env)
        except ApiError as exc:
            audit.record_failure(context, req, exc.status)
            raise
        return msgspec.structs.replace(visitor_of_cookie, identity=identity)
    return visitor_of_cookie


def log_in(context: ApiContext, env: Mapping[str, Any], credentials: dict[str, str], record: LoginAudit) -> Visitor:
    """Return the visitor with a new session; what ``Authentication.identify`` raises for wrong credentials.

    ``credentials``: keys of an environ and their values.
    """
    identity = context.access.authentication.identify(_anonymous(env) | credentials)
    context = record.begin(identity)
    secret = new_secret()
    sealed = base64.b64encode(_seal(derive_key(secret, "key"), msgspec.json.encode(credentials))).decode()
    user = identity.principal[:_MAX_USER_CHARACTERS]

    def work(tx: Transaction) -> int:
        # Before the new one is added: if the database's clock was set back, that is not the newest.
        ended = tx.web_sessions.remove_oldest(user, MAX_SESSIONS - 1)
        tx.web_sessions.add(
            WebSession(
                id=derive_key(secret, "id").hex(),
                sealed=sealed,
                user=user,
                created_at=tx.now,
                expires_at=tx.now + SESSION_SECONDS,
            )
        )
        return ended

    if context.data.store.write(work):
        record.oldest_ended()
    return Visitor(secret=secret, is_new=True, identity=identity, session=True)


def end(context: ApiContext, secret: str) -> None:
    """Delete the session."""
    context.data.store.write(lambda tx: tx.web_sessions.remove(derive_key(secret, "id").hex()))


def set_cookie(context: ApiContext, req: falcon.Request, resp: falcon.Response, secret: str) -> None:
    """Have the browser keep the secret until it is closed."""
    secure = is_secure(context, req)
    name = _SECURE if secure else _PLAIN
    resp.set_cookie(name, secret, path="/", http_only=True, secure=secure, same_site="Lax")


def remember(
    context: ApiContext, req: falcon.Request, resp: falcon.Response, name: str, value: str, seconds: int
) -> None:
    """Have the browser keep a value that is not secret, for this long."""
    secure = is_secure(context, req)
    resp.set_cookie(name, value, path="/ui", max_age=seconds, http_only=True, secure=secure, same_site="Lax")


def check_origin(context: ApiContext, req: falcon.Request) -> bool:
    """Raise ``ForbiddenError`` if a page of another origin sent a form here; return whether it certainly was one of
    ours.

    Our origins are those of the request itself, of ``public_url``, and the one that a trusted proxy reports. HTTPS is
    always ours: a proxy may terminate it without saying so. Plain HTTP is not ours if we are reached over HTTPS.
    """
    site, origin = req.env.get("HTTP_SEC_FETCH_SITE"), req.env.get("HTTP_ORIGIN")
    if site not in (None, "same-origin", "none") or origin == "null":
        raise ForbiddenError("This form was sent by another web site.")
    if origin is None:
        return site == "same-origin"
    host = str(req.env.get("HTTP_HOST", ""))
    hosts = [host, context.access.proxies.host(req.env)]
    schemes = ("https",) if is_secure(context, req) else ("https", "http")
    ours = {_origin(f"{scheme}://{host}") for host in hosts if host for scheme in schemes}
    sent_origin = _origin(origin)
    if sent_origin is None or sent_origin not in ours | {_origin(context.settings.api.public_url)}:
        raise ForbiddenError(
            f"This form was sent by another web site, {origin[:_MAX_SHOWN]!r}: it is not {host[:_MAX_SHOWN]!r}. If a "
            "proxy changes the host name, set [api] public_url to the URL in the browser."
        )
    return True


def _origin(url: str) -> tuple[str, str, int] | None:
    """Return scheme, host and port; None if the text is not a URL with a host."""
    try:
        parts = urlsplit(url)
        port = parts.port or {"https": 443, "http": 80}.get(parts.scheme, 0)
    except ValueError:
        return None
    return (parts.scheme, parts.hostname.rstrip("."), port) if parts.hostname else None


def is_token(visitor: Visitor, token: str) -> bool:
    """Return whether a form carries the token of this browser's present session."""
    return not visitor.is_new and hmac.compare_digest(token.encode(), visitor.csrf.encode())


def _anonymous(env: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in env.items() if name not in _CREDENTIALS}


def _read_stored(context: ApiContext, secret: str) -> dict[str, str] | None:
    ident = derive_key(secret, "id").hex()
    session = context.data.store.read(lambda tx: tx.web_sessions.get(ident), snapshot=False)
    if session is None:
        return None
    return json_safety.decode_own(_open(derive_key(secret, "key"), base64.b64decode(session.sealed)), dict[str, str])


class Seal:
    """Encrypts data that a page gives to the browser and gets back with the next form, such as a file with passwords.

    Only this browser's cookie opens it again, and only for an hour. ``now``: seconds since the epoch.
    """

    def __init__(self, secret: str, now: Callable[[], float]) -> None:
        self._key = derive_key(secret, "form")
        self._now = now

    def close(self, document: Any) -> str:
        """Return the encrypted document as letters and digits."""
        plain = msgspec.json.encode((self._now() + _SEALED_SECONDS, document))
        return base64.urlsafe_b64encode(_seal(self._key, plain)).decode()

    def open(self, text: str) -> Any:
        """Return the document; ``BadRequestError`` if it is not ours, of another session, or too old."""
        from cryptography.exceptions import InvalidTag

        try:
            plain = _open(self._key, base64.urlsafe_b64decode(text.encode("ascii")))
        except (ValueError, InvalidTag):
            raise BadRequestError("This form does not belong to this session. Start again.") from None
        until, document = json_safety.decode_own(plain, tuple[float, Any])
        if until <= self._now():
            raise BadRequestError("This form has expired. Start again.")
        return document


def _seal(key: bytes, plain: bytes) -> bytes:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonce = os.urandom(_NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, plain, None)


def _open(key: bytes, sealed: bytes) -> bytes:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], None)
