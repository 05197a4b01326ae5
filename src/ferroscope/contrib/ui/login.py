"""The login form: turns its fields into the credentials that an API client would send."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final

from ferroscope.api.auth.identity import PasswordLogin
from ferroscope.api.errors import ApiError, BadRequestError
from ferroscope.api.http.context import ApiContext
from ferroscope.contrib.ui.page import HtmlPage
from ferroscope.core import credentials

_MAX_SECRET_CHARACTERS: Final = 16 * 1024
_MAX_NAME_CHARACTERS: Final = 255


def target(query: dict[str, list[str]]) -> str:
    """Return the page to show after the login: always one of ours, regardless of a link."""
    wanted = (query.get("next") or ["/ui"])[0]
    is_ours = wanted == "/ui" or wanted.startswith(("/ui/", "/ui?"))
    return wanted if is_ours and wanted.isprintable() and wanted.isascii() and "\\" not in wanted else "/ui"


def page(
    context: ApiContext, target: str, *, failed: ApiError | None = None, user: str = "", kept: str = ""
) -> HtmlPage:
    """Return the form, with the reason of a failed login, and with a late form that was kept."""
    data = {
        "target": target,
        "strategy": context.settings.api.auth_strategy,
        "failed": None if failed is None else failed.message,
        "name": user[:255],
        "kept": kept,
    }
    return HtmlPage(template="login.html", title="Log in", data=data, status=200 if failed is None else failed.status)


def claims(context: ApiContext, form: dict[str, list[str]]) -> str:
    """Return the user name in the form."""
    token, user = ((form.get(name) or [""])[0].strip() for name in ("token", "user"))
    return context.access.authentication.claimed_name({"HTTP_X_AUTH_TOKEN": token}) if token else user


def given_credentials(context: ApiContext, env: Mapping[str, Any], form: dict[str, list[str]]) -> dict[str, str]:
    """Return the credentials as keys of an environ; ``BadRequestError`` if there are none.

    With Keystone, a password is exchanged for a token at once and is not kept; what ``Authentication.issue`` raises.
    """
    token, user, password = ((form.get(name) or [""])[0] for name in ("token", "user", "password"))
    token = token.strip()
    if any(len(value) > _MAX_SECRET_CHARACTERS for value in (token, user, password)):
        raise BadRequestError("The credentials are too long.")
    if token:
        if not (token.isascii() and token.isprintable()):
            raise BadRequestError("The token contains invalid characters.")
        if token.startswith(credentials.PREFIX):
            return {"HTTP_AUTHORIZATION": f"Bearer {token}"}
        return {"HTTP_X_AUTH_TOKEN": token}
    if user and context.settings.api.auth_strategy == "http_basic":
        pair = base64.b64encode(f"{user}:{password}".encode()).decode()
        return {"HTTP_AUTHORIZATION": f"Basic {pair}"}
    if user and context.settings.api.auth_strategy == "keystone":
        project, domain, system = ((form.get(name) or [""])[0].strip() for name in ("project", "domain", "system"))
        if len(project) > _MAX_NAME_CHARACTERS or len(domain) > _MAX_NAME_CHARACTERS:
            raise BadRequestError("The name of the project or of the domain is too long.")
        asked = PasswordLogin(
            user=user, password=password, project=project, domain=domain or "Default", system=system == "yes"
        )
        return {"HTTP_X_AUTH_TOKEN": context.access.authentication.issue(env, asked)}
    raise BadRequestError("Enter a user name and a password, or a token.")
