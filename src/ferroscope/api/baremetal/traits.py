"""The traits of a node: list, replace, add and remove. Source: the Bare Metal API reference.

Inspection rules add and remove traits too. An inspection changes only the traits that its rules add or remove, so what
a caller sets meanwhile is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from ferroscope.api.errors import BadRequestError, MissingError
from ferroscope.api.http.context import ApiContext, DataAccess
from ferroscope.api.http.decoding import node_ident, shown_value
from ferroscope.api.http.route import NoQuery, Reply, RouteCall
from ferroscope.core.node_changes import ValueSource, sourced_values, update_sources
from ferroscope.db import Transaction
from ferroscope_client.core.node import Node
from ferroscope_client.core.values import MAX_TRAITS, TRAIT, is_trait


class Traits(msgspec.Struct, frozen=True):
    """GET /v1/nodes/{node}/traits."""

    traits: list[str]


class TraitsBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """PUT /v1/nodes/{node}/traits."""

    traits: list[str]


def get_traits(context: ApiContext, call: RouteCall[NoQuery, None]) -> Reply:
    """List the traits of a node."""
    ident = node_ident(call)
    node = context.data.store.read(lambda tx: tx.nodes.get(ident), snapshot=False)
    return Reply(200, Traits(traits=_of(node)))


def set_traits(context: ApiContext, call: RouteCall[NoQuery, TraitsBody]) -> Reply:
    """Replace all traits of a node."""
    wanted = set(call.body.traits)
    for trait in sorted(wanted)[: MAX_TRAITS + 1]:
        _check(trait)
    _change(context.data, call, lambda _: wanted)
    return Reply(204)


def add_trait(context: ApiContext, call: RouteCall[NoQuery, dict[str, Any] | None]) -> Reply:
    """Add a trait to a node; nothing changes if the node has it."""
    trait = call.path["trait"]
    _check(trait)
    if call.body:
        raise BadRequestError("Adding one trait takes no body; to replace all traits, leave the trait out of the path.")
    _change(context.data, call, lambda node: {*_of(node), trait})
    return Reply(204, headers={"Location": f"{call.url}/v1/nodes/{call.path['node']}/traits/{trait}"})


def remove_traits(context: ApiContext, call: RouteCall[NoQuery, None]) -> Reply:
    """Remove all traits from a node."""
    _change(context.data, call, lambda _: set())
    return Reply(204)


def remove_trait(context: ApiContext, call: RouteCall[NoQuery, None]) -> Reply:
    """Remove a trait from a node."""
    trait = call.path["trait"]

    def without(node: Node) -> set[str]:
        if trait not in _of(node):
            raise MissingError(f"Node {node.uuid} doesn't have a trait {shown_value(trait)}.")
        return set(_of(node)) - {trait}

    _change(context.data, call, without)
    return Reply(204)


def _of(node: Node) -> list[str]:
    return sorted(node.attributes.get("traits", []))


def _check(trait: str) -> None:
    if not is_trait(trait):
        raise BadRequestError(f"Invalid trait {shown_value(trait)}: it must be {TRAIT}, at most 255 characters.")


def _change(data: DataAccess, call: RouteCall[Any, Any], traits: Callable[[Node], set[str]]) -> None:
    ident = node_ident(call)

    def work(tx: Transaction) -> None:
        node = tx.nodes.get(ident, lock=True)
        wanted = traits(node)
        if len(wanted) > MAX_TRAITS:
            raise BadRequestError(
                f"Could not modify traits for node {node.uuid} as it would exceed the maximum number of traits per "
                f"node ({len(wanted)} vs. {MAX_TRAITS})."
            )
        attributes = {name: value for name, value in node.attributes.items() if name != "traits"}
        if wanted:
            attributes["traits"] = sorted(wanted)
        changed = msgspec.structs.replace(node, attributes=attributes)
        changed.sources = update_sources(sourced_values(node), changed, ValueSource.OPERATOR)
        tx.nodes.update(changed)

    data.store.write(work)
