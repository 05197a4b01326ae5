"""Forms that arrive after the end of their session: the browser keeps them, sealed, until the next login.

Neither the late form nor the login carries anything out: the form is shown again, ready to be sent to its previous
target. Only this browser's cookie opens a kept form, see ``session.Seal``.
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
    """A form and its target."""

    path: str
    form: Form


def close(context: ApiContext, secret: str, kept: Kept) -> str:
    """Return the sealed text, "" if it is too long."""
    sealed = Seal(secret, context.process.clock.time).close(msgspec.to_builtins(kept))
    return sealed if len(sealed) <= _MAX_SEALED_CHARACTERS else ""


def opened(context: ApiContext, secret: str, form: Form) -> Kept | None:
    """Return the kept form; None if there is none; ``BadRequestError``."""
    sealed = (form.get(FIELD) or [""])[0]
    if not sealed:
        return None
    return msgspec.convert(Seal(secret, context.process.clock.time).open(sealed), Kept)


def of(context: ApiContext, secret: str, form: Form, path: str) -> Form:
    """Return the form itself, or the one that was kept for this path."""
    kept = opened(context, secret, form)
    if kept is None:
        return form
    if kept.path != path:
        raise BadRequestError("This form belongs to another page. Start again.")
    return kept.form


def page(context: ApiContext, secret: str, kept: Kept, *, late: bool = False) -> HtmlPage:
    """Return the page that sends the form in the new session; ``late``: the user logged in on another page.

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
