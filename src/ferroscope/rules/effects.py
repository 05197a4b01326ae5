"""The actions that tell or ask somebody else something: fail, log, approve, api-call.

None of them does it here: a refusal is raised, messages and calls are handed to the worker.
"""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import urlsplit

from ferroscope.core.model import Document
from ferroscope.rules.bench import Acting, ApiCall, Logged
from ferroscope.rules.errors import RefusedError, RuleError

LEVELS: Final = ("debug", "info", "warning", "error", "critical")

MAX_TIMEOUT: Final = 30.0
MAX_RETRIES: Final = 5
MAX_BACKOFF: Final = 10.0
_MAX_MESSAGE: Final = 2000
_MAX_HEADERS: Final = 32
_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}\Z", re.ASCII)


def fail(_acting: Acting, args: Document) -> None:
    raise RefusedError(str(args["msg"])[:_MAX_MESSAGE])


def log(acting: Acting, args: Document) -> None:
    if not acting.sensitive:
        message = str(args["msg"])[:_MAX_MESSAGE]
        acting.bench.logged.append(Logged(rule=acting.rule, level=str(args["level"]).lower(), message=message))


def approve(acting: Acting, _args: Document) -> None:
    node = acting.bench.node
    if node.inbox:
        node.inbox = False
        acting.bench.logged.append(Logged(rule=acting.rule, level="info", message="taken out of the inbox by a rule"))


def log_level(value: Any) -> str | None:
    return None if str(value).lower() in LEVELS else f"must be one of {', '.join(LEVELS)}"


def api_call(acting: Acting, args: Document) -> None:
    bench = acting.bench
    bench.budget.calls -= 1
    if bench.budget.calls < 0:
        raise RuleError("the rules asked for too many API calls for one inspection")
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
    if call not in bench.calls:
        bench.calls.append(call)


def url(value: Any) -> str | None:
    """Say what is wrong with the address of an API call."""
    text = str(value)
    try:
        parts = urlsplit(text)
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        known = False
    if not known or "@" in parts.netloc:
        return "must be like https://host/path, without a user name"
    if not text.isascii() or not text.isprintable() or " " in text or "\\" in text:
        return "holds characters that a URL cannot have; escape them"
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


def _headers(given: Any) -> dict[str, str]:
    if given is None:
        return {}
    if not isinstance(given, dict) or len(given) > _MAX_HEADERS:
        raise RuleError(f"headers must be an object with at most {_MAX_HEADERS} names and values")
    headers = {str(name): str(value) for name, value in given.items()}
    for name, value in headers.items():
        if not _HEADER.match(name) or not value.isascii() or not value.isprintable():
            raise RuleError(f"the header {name[:64]!r} has a name or a value that HTTP does not allow")
    return headers


def _proxy(given: Any, scheme: str) -> str | None:
    if given is None:
        return None
    if not isinstance(given, dict) or set(given) - {"http", "https"}:
        raise RuleError("proxies must be an object with the URL for http, https or both")
    chosen = given.get(scheme)
    problem = None if chosen is None else url(chosen)
    if problem is not None:
        raise RuleError(f"proxies: the URL {problem}")
    return None if chosen is None else str(chosen)
