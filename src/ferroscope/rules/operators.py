"""What conditions can ask: one table for both dialects.

An operator gets its arguments with the types that they have in the data. One that does not ``judge``
what is missing never holds on it, inverted or not: a rule about data that is not there is not applied.
"""

from __future__ import annotations

import ipaddress
import itertools
from collections.abc import Callable
from typing import Any, Final

import msgspec

from ferroscope.core.model import Document
from ferroscope.rules import regexes
from ferroscope.rules.arguments import Argument, Kind, Signature
from ferroscope.rules.compare import chain, equal
from ferroscope.rules.errors import InvalidRuleError, MissingDataError, RuleError
from ferroscope.rules.limits import Budget

Test = Callable[[Document, Budget], bool]


class Operator(msgspec.Struct, frozen=True):
    """``arguments`` are those of the Bare Metal API, ``literal`` the one that the other dialect calls ``value``."""

    arguments: Signature
    test: Test
    judges_missing: bool = False
    literal: str | None = None


def _regex(value: Any) -> str | None:
    try:
        regexes.compiled(str(value))
    except InvalidRuleError as exc:
        return str(exc)
    return None


def _network(value: Any) -> str | None:
    try:
        ipaddress.ip_network(str(value), strict=False)
    except ValueError as exc:
        return f"{str(value)[:64]!r} is no network like 192.0.2.0/24: {exc}"
    return None


def _list(value: Any) -> str | None:
    return None if isinstance(value, list) else f"must be a list, it was {type(value).__name__}"


def _comparison(name: str) -> Operator:
    neighbours = chain(name)

    def test(args: Document, _budget: Budget) -> bool:
        values = args["values"]
        if not isinstance(values, list):
            raise RuleError(f"the values to compare must be a list, they were {type(values).__name__}")
        if args["force_strings"] is True:
            values = [str(value) for value in values]
        return all(neighbours(one, other) for one, other in itertools.pairwise(values))

    signature = Signature((Argument("values", check=_list), Argument("force_strings", Kind.LITERAL, False)))
    return Operator(signature, test, literal="values")


def _unary(test: Callable[[Any], bool]) -> Operator:
    return Operator(Signature((Argument("value"),)), lambda args, _budget: test(args["value"]), judges_missing=True)


def _search(*, whole: bool) -> Operator:
    def test(args: Document, budget: Budget) -> bool:
        return regexes.matches(args["regex"], args["value"], budget, whole=whole)

    signature = Signature((Argument("value"), Argument("regex", Kind.LITERAL, check=_regex)))
    return Operator(signature, test, literal="regex")


def _in_net(args: Document, _budget: Budget) -> bool:
    if args["address"] in (None, ""):
        raise MissingDataError("address")
    try:
        address = ipaddress.ip_address(str(args["address"]))
        return address in ipaddress.ip_network(str(args["subnet"]), strict=False)
    except ValueError as exc:
        raise RuleError(str(exc)) from None


def _one_of(args: Document, _budget: Budget) -> bool:
    if not isinstance(args["values"], list):
        raise RuleError(f"one-of needs a list, it was {type(args['values']).__name__}")
    return any(equal(args["value"], other) for other in args["values"])


def _is_empty(value: Any) -> bool:
    return value is None or value in ("", [], {})


def _is_true(value: Any) -> bool:
    return value.strip().lower() in ("yes", "true") if isinstance(value, str) else bool(_flag(value))


def _is_false(value: Any) -> bool:
    return (
        value.strip().lower() in ("no", "false") if isinstance(value, str) else value is None or _flag(value) is False
    )


def _flag(value: Any) -> bool | None:
    return bool(value) if isinstance(value, bool | int | float) else None


OPERATORS: Final[dict[str, Operator]] = {
    **{name: _comparison(name) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    "is-empty": _unary(_is_empty),
    "is-none": _unary(lambda value: value is None),
    "is-true": _unary(_is_true),
    "is-false": _unary(_is_false),
    "in-net": Operator(Signature((Argument("address"), Argument("subnet", check=_network))), _in_net, literal="subnet"),
    "matches": _search(whole=True),
    "contains": _search(whole=False),
    "one-of": Operator(Signature((Argument("value"), Argument("values", default=[], check=_list))), _one_of),
}
