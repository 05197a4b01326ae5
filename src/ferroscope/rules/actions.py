"""The actions of rules, in one table for both dialects.

An action changes the copies in its ``RuleContext``; the changes of all rules are committed with the inspection's other
results, or not at all.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from ferroscope.core.model import Document
from ferroscope.rules import writes
from ferroscope.rules.data import Acting, ApiCall, Logged, RuleError, WriteRefusedError
from ferroscope.rules.template import Argument, ArgumentKind, Signature
from ferroscope_client.core.host_spelling import refusal_of_urls

# Actions with an effect elsewhere: fail, log, approve, api-call.
#
# They do not take effect here: a refusal is raised, and messages and calls are passed to the worker.

LEVELS: Final = ("debug", "info", "warning", "error", "critical")

MAX_TIMEOUT: Final = 30.0
MAX_RETRIES: Final = 5
MAX_BACKOFF: Final = 10.0
_MAX_MESSAGE: Final = 2000
_MAX_HEADERS: Final = 32
_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}\Z", re.ASCII)


def fail(_acting: Acting, args: Document) -> None:
    raise WriteRefusedError(str(args["msg"])[:_MAX_MESSAGE])


def log(acting: Acting, args: Document) -> None:
    if not acting.sensitive:
        message = str(args["msg"])[:_MAX_MESSAGE]
        acting.rule_context.logged.append(Logged(rule=acting.rule, level=str(args["level"]).lower(), message=message))


def approve(acting: Acting, _args: Document) -> None:
    node = acting.rule_context.node
    if node.inbox:
        node.inbox = False
        acting.rule_context.logged.append(Logged(rule=acting.rule, level="info", message="approved by a rule"))


def log_level(value: Any) -> str | None:
    return None if str(value).lower() in LEVELS else f"must be one of {', '.join(LEVELS)}"


def api_call(acting: Acting, args: Document) -> None:
    rule_context = acting.rule_context
    rule_context.budget.calls -= 1
    if rule_context.budget.calls < 0:
        raise RuleError("too many API calls for one inspection")
    for name, check in (("url", url), ("timeout", timeout), ("retries", retries), ("backoff_factor", backoff)):
        problem = check(args[name])
        if problem is not None:
            raise RuleError(f"{name}: {problem}")
    call = ApiCall(
        rule=acting.rule,
        sensitive=acting.sensitive,
        url=str(args["url"]),
        headers=_headers(args["headers"]),
        proxy=_proxy(args["proxies"], urlsplit(str(args["url"])).scheme),
        timeout=float(args["timeout"]),
        retries=int(args["retries"]),
        backoff=float(args["backoff_factor"]),
    )
    if call not in rule_context.calls:
        rule_context.calls.append(call)


def url(value: Any) -> str | None:
    """Return the problem of the URL of an API call, or None."""
    text = str(value)
    try:
        parts = urlsplit(text)
        is_web_url = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_web_url = False
    if not is_web_url or "@" in parts.netloc:
        return "must be a URL like https://host/path, without a user name"
    if why := refusal_of_urls(text):
        return f"has a host that is refused: {why}"
    if not text.isascii() or not text.isprintable() or " " in text or "\\" in text:
        return "contains characters that are invalid in a URL; escape them"
    return None


def timeout(value: Any) -> str | None:
    return _between(value, 0.01, MAX_TIMEOUT)


def retries(value: Any) -> str | None:
    return _between(value, 0, MAX_RETRIES)


def backoff(value: Any) -> str | None:
    return _between(value, 0, MAX_BACKOFF)


def _between(value: Any, least: float, most: float) -> str | None:
    try:
        number = None if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = None
    return None if number is not None and least <= number <= most else f"must be a number from {least} to {most:g}"


def _headers(headers: Any) -> dict[str, str]:
    if headers is None:
        return {}
    if not isinstance(headers, dict) or len(headers) > _MAX_HEADERS:
        raise RuleError(f"headers must be an object with at most {_MAX_HEADERS} names and values")
    texts = {str(name): str(value) for name, value in headers.items()}
    for name, value in texts.items():
        if not _HEADER.match(name) or not value.isascii() or not value.isprintable():
            raise RuleError(f"invalid name or value of the HTTP header {name[:64]!r}")
    return texts


def _proxy(proxies: Any, scheme: str) -> str | None:
    if proxies is None:
        return None
    if not isinstance(proxies, dict) or set(proxies) - {"http", "https"}:
        raise RuleError("proxies must be an object with the URL for http, https or both")
    proxy_url = proxies.get(scheme)
    problem = None if proxy_url is None else url(proxy_url)
    if problem is not None:
        raise RuleError(f"proxies: the URL {problem}")
    return None if proxy_url is None else str(proxy_url)


Run = Callable[[Acting, Document], None]

_PATH: Final = Argument("path", ArgumentKind.LITERAL, check=writes.node_path)
_DATA_PATH: Final = Argument("path", ArgumentKind.LITERAL, check=writes.data_path)
_PORT_PATH: Final = Argument("path", ArgumentKind.LITERAL, check=writes.port_path)
_VALUE: Final = Argument("value")
_NAME: Final = Argument("name", ArgumentKind.LITERAL)
_UNIQUE: Final = Argument("unique", ArgumentKind.LITERAL, False)
_PORT: Final = Argument("port_id")


class RuleAction(msgspec.Struct, frozen=True):
    """``introspection``: the names of the arguments in the other dialect; None: it does not have this action.

    ``check`` validates the arguments in combination, as far as they are constant.
    """

    run: Run
    arguments: Signature
    introspection: tuple[str, ...] | None = None
    check: Callable[[Document], str | None] | None = None


def _action(
    run: Run,
    *arguments: Argument,
    introspection: tuple[str, ...] | None = None,
    check: Callable[[Document], str | None] | None = None,
) -> RuleAction:
    return RuleAction(run, Signature(arguments), introspection, check)


ACTIONS: Final[dict[str, RuleAction]] = {
    "fail": _action(fail, Argument("msg", ArgumentKind.MESSAGE), introspection=("message",)),
    "log": _action(
        log, Argument("msg", ArgumentKind.MESSAGE), Argument("level", ArgumentKind.LITERAL, "info", log_level)
    ),
    # For discovered nodes; Ferroscope's own action, unknown to the Bare Metal service.
    "approve": _action(approve),
    "set-attribute": _action(
        writes.set_attribute,
        _PATH,
        _VALUE,
        Argument("reset_interfaces", ArgumentKind.LITERAL, None),
        introspection=("path", "value", "reset_interfaces"),
        check=writes.reset_needs_driver,
    ),
    "extend-attribute": _action(
        writes.extend_attribute, _PATH, _VALUE, _UNIQUE, introspection=("path", "value", "unique")
    ),
    "del-attribute": _action(writes.del_attribute, _PATH),
    "set-capability": _action(
        writes.set_capability, _NAME, Argument("value", default=None), introspection=("name", "value")
    ),
    "unset-capability": _action(writes.unset_capability, _NAME),
    "add-trait": _action(writes.add_trait, Argument("name", check=writes.trait), introspection=("name",)),
    "remove-trait": _action(writes.remove_trait, _NAME, introspection=("name",)),
    "set-plugin-data": _action(writes.set_plugin_data, _DATA_PATH, _VALUE),
    "extend-plugin-data": _action(writes.extend_plugin_data, _DATA_PATH, _VALUE, _UNIQUE),
    "unset-plugin-data": _action(writes.unset_plugin_data, _DATA_PATH),
    "set-port-attribute": _action(writes.set_port_attribute, _PORT, _PORT_PATH, _VALUE),
    "extend-port-attribute": _action(writes.extend_port_attribute, _PORT, _PORT_PATH, _VALUE, _UNIQUE),
    "del-port-attribute": _action(writes.del_port_attribute, _PORT, _PORT_PATH),
    "api-call": _action(
        api_call,
        Argument("url", ArgumentKind.URL, check=url),
        Argument("headers", default=None),
        Argument("proxies", ArgumentKind.LITERAL, None),
        Argument("timeout", ArgumentKind.LITERAL, 5, timeout),
        Argument("retries", ArgumentKind.LITERAL, 3, retries),
        Argument("backoff_factor", ArgumentKind.LITERAL, 0.3, backoff),
    ),
}

INTROSPECTION_ACTIONS: Final = tuple(name for name, action in ACTIONS.items() if action.introspection is not None)


def find_action(name: Any, names: tuple[str, ...]) -> RuleAction | None:
    """Return the action with this name if it is in ``names``."""
    return ACTIONS[name] if isinstance(name, str) and name in names else None
