"""The login form: what somebody enters, as the credentials that an API client would send."""

from __future__ import annotations

import base64
from typing import Final

from ferroscope.api.http.errors import ApiError, BadRequestError
from ferroscope.api.http.route import ApiContext
from ferroscope.core import access_token
from ferroscope.ui.page import Page

_LONGEST: Final = 16 * 1024


def target(query: dict[str, list[str]]) -> str:
    """Return the page to show after the login: one of ours, whatever a link says."""
    wanted = (query.get("next") or ["/ui"])[0]
    is_ours = wanted == "/ui" or wanted.startswith(("/ui/", "/ui?"))
    return wanted if is_ours and wanted.isprintable() and wanted.isascii() and "\\" not in wanted else "/ui"


def page(context: ApiContext, target: str, *, failed: ApiError | None = None, user: str = "") -> Page:
    """Return the form; with the reason why a login failed."""
    data = {
        "target": target,
        "strategy": context.settings.api.auth_strategy,
        "failed": None if failed is None else failed.message,
        "name": user[:255],
    }
    return Page(template="login.html", title="Log in", data=data, status=200 if failed is None else failed.status)


def credentials(context: ApiContext, form: dict[str, list[str]]) -> dict[str, str]:
    """Return the credentials as keys of an environ; ``BadRequestError`` if there are none."""
    token, user, password = ((form.get(name) or [""])[0] for name in ("token", "user", "password"))
    token = token.strip()
    if any(len(one) > _LONGEST for one in (token, user, password)):
        raise BadRequestError("The credentials are too long.")
    if token:
        if not (token.isascii() and token.isprintable()):
            raise BadRequestError("The token contains invalid characters.")
        if token.startswith(access_token.PREFIX):
            return {"HTTP_AUTHORIZATION": f"Bearer {token}"}
        return {"HTTP_X_AUTH_TOKEN": token}
    if user and context.settings.api.auth_strategy == "http_basic":
        pair = base64.b64encode(f"{user}:{password}".encode()).decode()
        return {"HTTP_AUTHORIZATION": f"Basic {pair}"}
    raise BadRequestError("Enter a user name and a password, or a token.")
