"""What rules can do: one table for both dialects; a new action is one entry in it.

An action changes the copies of its ``Bench``; everything that rules did is committed together with the
inspection's other results, or not at all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from ferroscope.core.model import Document
from ferroscope.rules import effects, writes
from ferroscope.rules.arguments import Argument, Kind, Signature
from ferroscope.rules.bench import Acting

Run = Callable[[Acting, Document], None]

_PATH: Final = Argument("path", Kind.LITERAL, check=writes.node_path)
_DATA_PATH: Final = Argument("path", Kind.LITERAL, check=writes.data_path)
_PORT_PATH: Final = Argument("path", Kind.LITERAL, check=writes.port_path)
_VALUE: Final = Argument("value")
_NAME: Final = Argument("name", Kind.LITERAL)
_UNIQUE: Final = Argument("unique", Kind.LITERAL, False)
_PORT: Final = Argument("port_id")


class Action(msgspec.Struct, frozen=True):
    """``introspection``: the names that the other dialect has for the arguments; None: it has no such action.

    ``check`` says what is wrong with the arguments together, as far as they are fixed.
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
) -> Action:
    return Action(run, Signature(arguments), introspection, check)


ACTIONS: Final[dict[str, Action]] = {
    "fail": _action(effects.fail, Argument("msg", Kind.MESSAGE), introspection=("message",)),
    "log": _action(
        effects.log, Argument("msg", Kind.MESSAGE), Argument("level", Kind.LITERAL, "info", effects.log_level)
    ),
    # For discovered nodes; not an action of the Bare Metal service, but of this one alone.
    "approve": _action(effects.approve),
    "set-attribute": _action(
        writes.set_attribute,
        _PATH,
        _VALUE,
        Argument("reset_interfaces", Kind.LITERAL, None),
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
        effects.api_call,
        Argument("url", Kind.URL, check=effects.url),
        Argument("headers", default=None),
        Argument("proxies", Kind.LITERAL, None),
        Argument("timeout", Kind.LITERAL, 5, effects.timeout),
        Argument("retries", Kind.LITERAL, 3, effects.retries),
        Argument("backoff_factor", Kind.LITERAL, 0.3, effects.backoff),
    ),
}

INTROSPECTION_ACTIONS: Final = tuple(name for name, action in ACTIONS.items() if action.introspection is not None)


def named(name: Any, known: tuple[str, ...]) -> Action | None:
    """Return the action of this name, if it is one of ``known``."""
    return ACTIONS[name] if isinstance(name, str) and name in known else None
