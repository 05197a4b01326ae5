"""One action on many machines: first a page that describes the effect, then the same form with the confirmation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from ferroscope.api.errors import ApiError, ForbiddenError, MissingError
from ferroscope.contrib.ui.page import HtmlPage, Visit
from ferroscope.core.model import Node
from ferroscope_client.core.values import many


class BulkAction(msgspec.Struct, frozen=True, kw_only=True):
    """``effect`` says what will happen to ``{}``, the machines; ``done`` ends the report.

    ``verb``: the provision state that is requested, or ``retry``; ``power``: the power state.
    """

    title: str
    policy: str
    effect: str
    done: str
    verb: str = ""
    power: str = ""


class BulkForm(msgspec.Struct, frozen=True, kw_only=True):
    """The form of an action: its template, its URL, and the page to return to."""

    template: str
    url: str
    back: str
    back_to: str


def act(
    visit: Visit,
    action: BulkAction,
    form: BulkForm,
    selected: Sequence[Node],
    *,
    more: bool,
    problem: str = "",
    again: bool = False,
    asked: Callable[[Node], dict[str, Any]],
    why_not: Callable[[Node], str],
    carry_out: Callable[[Node], object],
    **data: Any,
) -> HtmlPage:
    """Return the page about an action, which is carried out if the form confirms it.

    ``more``: more machines match than one action may have. ``problem``: the error of the form, which is then shown
    again; ``again``: also show it again for refused machines. ``asked`` returns a machine's data for the page, at least
    ``uuid`` and ``name``. ``why_not`` returns why a machine is left out, "" if it is not. ``data`` is for the template.
    """
    if not selected and (visit.form.get("node") or visit.given("all") == "yes"):
        raise MissingError("No matching machines.")
    if not selected:
        form_data = {"back": form.back, "back_to": form.back_to, "verb": action.title}
        return HtmlPage(template="nothing.html", title="No machine is selected", data=form_data, status=400)
    allowed = [node for node in selected if visit.may(action.policy, node)]
    if not allowed:
        raise ForbiddenError(f"The policy {action.policy} does not allow this for {visit.identity}.")
    possible, left_out = [], []
    for node in selected:
        why = why_not(node) if node in allowed else "not allowed"
        if why:
            left_out.append(asked(node) | {"why": why})
        else:
            possible.append(node)
    shown = [asked(node) for node in possible]
    confirmed = visit.given("confirm") == "yes" and not problem
    results = [row | {"error": _error(carry_out, node)} for row, node in zip(shown, possible, strict=True) if confirmed]
    result_data = {
        "action": visit.given("action"),
        "verb": action.title,
        "effect": action.effect,
        "done": action.done,
        "url": form.url,
        "back": form.back,
        "back_to": form.back_to,
        "possible": [row for row in results if again and row["error"]] if confirmed else shown,
        "left_out": left_out,
        "more": more,
        "problem": problem,
        "confirmed": confirmed,
        "results": results,
        "succeeded": sum(not row["error"] for row in results),
    }
    named = shown[0]["name"] if len(shown) == 1 else many(len(shown), "machine")
    title = f"{action.title}: {named}" if shown else action.title
    return HtmlPage(template=form.template, title=title, data=result_data | data, status=400 if problem else 200)


def _error(carry_out: Callable[[Node], object], node: Node) -> str:
    try:
        carry_out(node)
    except ApiError as exc:
        return exc.message
    return ""
