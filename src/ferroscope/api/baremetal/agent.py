"""The agent in a ramdisk: the token that it gets once, and what it is told of itself.

Only the token's SHA-256 is stored, bound to the inspection, so it ends with the inspection.
Source: lookup and heartbeat of the Bare Metal API reference, as ironic-python-agent uses them.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Any, Final

import msgspec

from ferroscope.api.http.route import ApiContext
from ferroscope.api.http.schemas import Link, pair
from ferroscope.core.model import Document, Node
from ferroscope.core.values import MASK, mask

_KEY: Final = "agent"
# What ironic-python-agent (11.0) reads of the node: hints of the root device and boot capabilities. Whoever guesses
# an address gets this answer, so it has nothing else.
_NEEDED: Final = ("root_device", "capabilities")


class AgentNode(msgspec.Struct, frozen=True):
    """The node as its own ramdisk sees it: of its documents no more than a ramdisk reads."""

    uuid: str
    properties: Document
    instance_info: Document
    driver_internal_info: Document
    links: list[Link]


class AgentConfig(msgspec.Struct, frozen=True):
    """``agent_token`` is six asterisks once it has been given out, None below its microversion."""

    heartbeat_timeout: int
    agent_token: str | None
    agent_token_required: bool
    metrics: Document = {}
    metrics_statsd: Document = {}


class AgentAnswer(msgspec.Struct, frozen=True):
    """The answer to a lookup, and to a callback from version 1.84 on."""

    node: AgentNode
    config: AgentConfig


def issue(context: ApiContext, node: Node, callback: str | None) -> tuple[Node, str]:
    """Return the node to be saved and its token; the mask where the token was given out before.

    Only the very same ``callback`` (its digest), repeated because its answer got lost, gets a new
    token in place of the old one.
    """
    known = _known(node)
    if known and (callback is None or known.get("callback") != callback):
        return node, MASK
    token = context.new_token()
    record = known | {"inspection": node.inspection, "callback": callback, "token_sha256": _digest(token)}
    return _with(node, record), token


def owns(node: Node, token: str) -> bool:
    """Whether this is the token of the node's present inspection."""
    return hmac.compare_digest(str(_known(node).get("token_sha256", "")), _digest(token))


def heard(node: Node, *, url: str, version: str | None, at: float) -> Node:
    """Return the node with what a heartbeat says."""
    return _with(node, _known(node) | {"url": url, "version": version, "last_heartbeat": at})


def answer(context: ApiContext, node: Node, token: str | None, url: str) -> AgentAnswer:
    """Return what the ramdisk is told."""
    return AgentAnswer(
        node=AgentNode(
            uuid=node.uuid,
            properties=_needed(node.properties),
            instance_info=_needed(node.instance_info),
            driver_internal_info={},
            links=pair(url, f"nodes/{node.uuid}"),
        ),
        config=AgentConfig(
            heartbeat_timeout=context.settings.api.heartbeat_timeout,
            agent_token=token,
            agent_token_required=token is not None,
        ),
    )


def _needed(document: Document) -> Document:
    return {name: mask({name: document[name]})[name] for name in _NEEDED if name in document}


def _known(node: Node) -> dict[str, Any]:
    record = node.internal.get(_KEY)
    return record if isinstance(record, dict) and record.get("inspection") == node.inspection else {}


def _with(node: Node, record: dict[str, Any]) -> Node:
    return msgspec.structs.replace(node, internal=node.internal | {_KEY: record})


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
