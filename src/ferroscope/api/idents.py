"""How a call names the node that it is about: by its UUID or its name, in the path or in a filter."""

from __future__ import annotations

from typing import Any, Final

from ferroscope.api import scalars
from ferroscope.api.call import Call

_NAMES_SINCE: Final = 5


def node_ident(call: Call[Any, Any]) -> str:
    """Return the UUID or name that a path of the Bare Metal API gives for a node."""
    return named_node(call, call.node)


def named_node(call: Call[Any, Any], given: str) -> str:
    """Return the UUID or name that ``given`` is, as far as the call's microversion knows names."""
    return scalars.ident("node", given, named=call.minor >= _NAMES_SINCE)


def introspected_ident(call: Call[Any, Any]) -> str:
    """Return the UUID or name that a path of the Introspection API gives for a node."""
    return scalars.ident("node", call.node)
