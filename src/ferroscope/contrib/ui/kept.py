"""Forms that come after their session has ended: kept in the browser, sealed, until somebody has logged in again.

Nothing is carried out meanwhile, nor by the login: the form is shown as ready to be sent, and goes to where it was sent
before. Only the cookie of this browser opens what was kept, see ``session.Seal``.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ferroscope.api.errors import BadRequestError, ForbiddenError
from ferroscope.api.http.context import ApiContext
from ferroscope.contrib.ui.page import HtmlPage
from ferroscope.contrib.ui.session import Seal

FIELD: Final = "kept"
# Characters that fit into the next form beside its other fields; longer ones are not kept.
_MAX_SEALED_CHARACTERS: Final = 96 * 1024
Form = dict[str, list[str]]


class Kept(msgspec.Struct, frozen=True):
    """A form, and where it was sent to."""

    path: str
    form: Form


def close(context: ApiContext, secret: str, kept: Kept) -> str:
    """Return what the browser keeps, "" if that is too long."""
    sealed = Seal(secret, context.process.clock.time).close(msgspec.to_builtins(kept))
    return sealed if len(sealed) <= _MAX_SEALED_CHARACTERS else ""


def opened(context: ApiContext, secret: str, form: Form) -> Kept | None:
    """Return what the browser kept; None if the form has nothing of it; ``BadRequestError``."""
    sealed = (form.get(FIELD) or [""])[0]
    if not sealed:
        return None
    return msgspec.convert(Seal(secret, context.process.clock.time).open(sealed), Kept)


def of(context: ApiContext, secret: str, form: Form, path: str) -> Form:
    """Return the form that is meant: itself, or the one that was kept for this path."""
    kept = opened(context, secret, form)
    if kept is None:
        return form
    if kept.path != path:
        raise BadRequestError("This form belongs to another page. Start again.")
    return kept.form


def page(context: ApiContext, secret: str, kept: Kept, *, late: bool = False) -> HtmlPage:
    """Return the page that sends the form, for the new session; ``late``: somebody has logged in elsewhere.

    ``ForbiddenError`` if the form is too long for that.
    """
    sealed = close(context, secret, kept)
    if not sealed:
        raise ForbiddenError(
            "Somebody has logged in or out in this browser since this page was opened. Nothing was changed, and what "
            "you entered is too long to be kept: your browser has it if you go back."
        )
    return HtmlPage(
        template="kept.html",
        title="Send it?",
        data={"path": kept.path, "kept": sealed, "late": late},
        status=409 if late else 200,
    )
