"""Labels of nodes, and selectors such as ``rack=r1,role!=db``. Pure.

The rules are those of Kubernetes, so that its tools and habits fit: a key is a name, with a DNS name and ``/`` before
it if a tool owns it; a value has up to 63 characters. A label without a value is a tag.
Source: the Kubernetes documentation, "Labels and Selectors".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

MAX_LABELS: Final = 64
LONGEST_SELECTOR: Final = 2000

KEY: Final = "up to 63 letters, digits, '-', '_' and '.', with an optional DNS name and '/' before them"
VALUE: Final = "up to 63 letters, digits, '-', '_' and '.', which begin and end with a letter or digit; or nothing"
"""The rules, for error messages."""

_WORD: Final = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_DNS: Final = r"(?=[a-z0-9.-]{1,253}/)[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*/"
_KEY: Final = re.compile(rf"(?:{_DNS})?{_WORD}\Z", re.ASCII)
_VALUE: Final = re.compile(rf"(?:{_WORD})?\Z", re.ASCII)


class LabelError(ValueError):
    """The labels or the selector are invalid."""


def is_key(text: str) -> bool:
    """Whether this is a valid key of a label."""
    return len(text) <= 253 + 64 and _KEY.match(text) is not None


def is_value(text: Any) -> bool:
    """Whether this is a valid value of a label; "" is the value of a tag."""
    return isinstance(text, str) and len(text) <= 63 and _VALUE.match(text) is not None


def problem(labels: Any) -> str | None:
    """Return the rule that these labels of a node break, or None."""
    if not isinstance(labels, dict):
        return "must be an object"
    if len(labels) > MAX_LABELS:
        return f"must be at most {MAX_LABELS}, not {len(labels)}"
    if len({str(key).lower() for key in labels}) < len(labels):
        return "must not have keys that differ only in upper and lower case"
    return next((wrong for key, value in labels.items() if (wrong := _wrong(key, value))), None)


def _wrong(key: str, value: Any) -> str | None:
    if not is_key(key):
        return f"must not have the key {key[:80]!r}: use {KEY}"
    return None if is_value(value) else f"must not have the value {str(value)[:80]!r} for {key}: use {VALUE}"


def valid_labels(reported: Any) -> dict[str, str]:
    """Return the labels of another program that we can keep; none if there are too many."""
    if not isinstance(reported, dict) or len(reported) > MAX_LABELS:
        return {}
    return {key: value for key, value in reported.items() if isinstance(key, str) and is_key(key) and is_value(value)}


def pair(text: str) -> tuple[str, str]:
    """Return ``rack=r1`` as key and value, and the tag ``spare`` with the value ""; ``LabelError``."""
    key, _, value = text.partition("=")
    wrong = _wrong(key, value)
    if wrong is not None:
        raise LabelError(f"a label {wrong}")
    return key, value


def format_labels(labels: Mapping[str, str]) -> str:
    """Return labels as ``rack=r1,spare``, which also selects the nodes that have all of them."""
    return ",".join(f"{key}={value}" if value else key for key, value in sorted(labels.items()))


class LabelTerm(msgspec.Struct, frozen=True):
    """``values`` None: the label exists. ``negated``: the opposite, which nodes without the label also satisfy."""

    key: str
    values: frozenset[str] | None
    negated: bool

    def fits(self, labels: Mapping[str, str]) -> bool:
        is_met = self.key in labels and (self.values is None or labels[self.key] in self.values)
        return is_met is not self.negated


class Selector(msgspec.Struct, frozen=True):
    """A parsed selector: a node must satisfy all of its terms."""

    terms: tuple[LabelTerm, ...]

    def fits(self, labels: Mapping[str, str] | None) -> bool:
        """Whether a node with these labels is selected."""
        return all(term.fits(labels or {}) for term in self.terms)


_TERM: Final = re.compile(
    r"""\s*+(?:
        (?P<absent>!)?\s*+(?P<alone>[^\s=!,()]++)\s*+\Z
      | (?P<key>[^\s=!,()]++)\s*+(?P<op>==|=|!=)\s*+(?P<value>[^\s=!,()]*+)\s*+\Z
      | (?P<listed>[^\s=!,()]++)\s++(?P<in>in|notin)\s*+\((?P<values>[^()=!]*+)\)\s*+\Z
    )""",
    re.VERBOSE,
)


def selector(text: str) -> Selector:
    """Return the parsed selector; ``LabelError``.

    ``rack=r1`` (or ``==``), ``role!=db``, ``rack in (r1,r2)``, ``rack notin (r1)``, ``spare``, ``!spare``, joined by
    commas.
    """
    if len(text) > LONGEST_SELECTOR:
        raise LabelError(f"the selector has more than {LONGEST_SELECTOR} characters")
    return Selector(tuple(_term(part) for part in _parts(text)))


def _parts(text: str) -> Iterator[str]:
    """Yield the texts between commas outside of parentheses."""
    start = depth = 0
    for at, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if char == "," and depth == 0:
            yield text[start:at]
            start = at + 1
    yield text[start:]


def _term(text: str) -> LabelTerm:
    match = _TERM.match(text)
    if match is None:
        raise LabelError(
            f"invalid selector {text.strip()[:80]!r}: expected KEY=VALUE, KEY!=VALUE, KEY, !KEY, KEY in (A,B) or "
            "KEY notin (A,B), joined by commas"
        )
    key = match["alone"] or match["key"] or match["listed"]
    values: frozenset[str] | None = None
    if match["key"]:
        values = frozenset({match["value"]})
    elif match["listed"]:
        values = frozenset(value.strip() for value in match["values"].split(","))
    wrong = next((complaint for value in sorted(values or {""}) if (complaint := _wrong(key, value))), None)
    if wrong is not None:
        raise LabelError(f"a label {wrong}")
    return LabelTerm(key, values, bool(match["absent"]) or match["op"] == "!=" or match["in"] == "notin")
