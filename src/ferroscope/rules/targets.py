"""Whom rules may call: URLs below which the configuration allows it. Without any, nobody."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import SplitResult, unquote, urlsplit

from ferroscope.rules.effects import url as wrong_with
from ferroscope.rules.errors import InvalidRuleError

_PORTS = {"http": 80, "https": 443}


def check(targets: Sequence[str]) -> None:
    """Raise ``InvalidRuleError`` for a target that is not a plain URL."""
    for target in targets:
        problem = wrong_with(target)
        if problem is None and (urlsplit(target).query or urlsplit(target).fragment):
            problem = "must have neither query nor fragment"
        if problem is not None:
            raise InvalidRuleError([f"[inspection_rules] api_call_targets: {target!r} {problem}"])


def allowed(url: str, targets: Sequence[str]) -> bool:
    """Whether ``url`` lies at or below one of ``targets``: same scheme, host and port, path below theirs."""
    if wrong_with(url) is not None:
        return False
    asked = urlsplit(url)
    if any(part in (".", "..") or "/" in part or "\\" in part for part in map(_decoded, asked.path.split("/"))):
        return False
    return any(_below(asked, urlsplit(target)) for target in targets)


def _decoded(part: str) -> str:
    """Return a part of a path as even a server that decodes twice may read it."""
    return unquote(unquote(part))


def _below(asked: SplitResult, target: SplitResult) -> bool:
    if (asked.scheme, asked.hostname, _port(asked)) != (target.scheme, target.hostname, _port(target)):
        return False
    base = target.path.rstrip("/")
    return asked.path == base or asked.path.startswith(f"{base}/") or (not base and not asked.path)


def _port(parts: SplitResult) -> int:
    return parts.port or _PORTS[parts.scheme]
