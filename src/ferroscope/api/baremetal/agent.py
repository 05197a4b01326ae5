"""The agent in a ramdisk: its token, which it gets once, and the response to its lookup.

A machine that gets the secret of its inspection gets the token with it, derived from the secret, and no lookup returns
it. Otherwise only the token's SHA-256 is stored, bound to the inspection, so it becomes invalid with the end of the
inspection. Source: lookup and heartbeat in the Bare Metal API reference, as ironic-python-agent uses them.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Any, Final

import msgspec

from ferroscope.api.http.context import ProcessContext
from ferroscope.api.http.schemas import ApiLink, pair
from ferroscope.config.options import Settings
from ferroscope.core import callback_secret
from ferroscope.core.callback_secret import Delivery
from ferroscope.core.model import Document, Inspection, Node
from ferroscope_client.core.values import MASK, mask

_KEY: Final = "agent"
_WITH_TOKEN: Final = (Delivery.VIRTUAL_MEDIA, Delivery.BOOT_SCRIPT)
# The properties that ironic-python-agent (11.0) reads: root device hints and boot capabilities. A caller who
# guesses a MAC address gets this response, so it contains nothing else.
_NEEDED: Final = ("root_device", "capabilities")


class AgentNode(msgspec.Struct, frozen=True):
    """The node as its own ramdisk sees it: only what a ramdisk needs."""

    uuid: str
    properties: Document
    instance_info: Document
    driver_internal_info: Document
    links: list[ApiLink]


class AgentConfig(msgspec.Struct, frozen=True):
    """``agent_token`` is six asterisks after it has been issued, None below its microversion."""

    heartbeat_timeout: int
    agent_token: str | None
    agent_token_required: bool
    metrics: Document = {}
    metrics_statsd: Document = {}


class AgentAnswer(msgspec.Struct, frozen=True):
    """The response to a lookup, and to a callback since version 1.84."""

    node: AgentNode
    config: AgentConfig


def issue(
    process: ProcessContext, node: Node, inspection: Inspection | None, callback: str | None, *, proven: bool
) -> tuple[Node, str]:
    """Return the node to save and its token; the mask if the token has been issued before.

    If the boot delivered it, only a caller who has ``proven`` to know the secret gets it. Only the same ``callback``
    (its digest), repeated because the response was lost, gets a new token, which replaces the old one.
    """
    delivered = _delivered_token(inspection)
    if delivered is not None:
        return node, delivered if proven else MASK
    previous = _agent_record(node)
    if previous and (callback is None or previous.get("callback") != callback):
        return node, MASK
    token = process.new_token()
    record = previous | {"inspection": node.inspection, "callback": callback, "token_sha256": _digest(token)}
    return _with(node, record), token


def without_agent(node: Node) -> Node:
    """Return the node without its agent: the next callback gets the token."""
    return msgspec.structs.replace(node, internal={key: value for key, value in node.internal.items() if key != _KEY})


def owns(node: Node, inspection: Inspection | None, token: str) -> bool:
    """Return whether this is the token of the node's current inspection."""
    digest, secret = _digest(token), callback_secret.live(inspection)
    if secret is not None and hmac.compare_digest(_digest(callback_secret.agent_token(secret)), digest):
        return True
    # If the machine booted by a script, only a process of an older release has issued one.
    issued = str(_agent_record(node).get("token_sha256", ""))
    on_disk = inspection is not None and inspection.secret_delivery == Delivery.VIRTUAL_MEDIA
    return not on_disk and hmac.compare_digest(issued, digest)


def _delivered_token(inspection: Inspection | None) -> str | None:
    """Return the token that the machine gets with its secret; None if it gets none."""
    secret = callback_secret.live(inspection)
    if secret is None or inspection is None or inspection.secret_delivery not in _WITH_TOKEN:
        return None
    return callback_secret.agent_token(secret)


def has_other_url(node: Node, url: str) -> bool:
    """Return whether a heartbeat of this inspection has announced another URL before."""
    return _agent_record(node).get("url") not in (None, url)


def with_heartbeat(node: Node, *, url: str, version: str | None, at: float) -> Node:
    """Return the node with the data of a heartbeat."""
    record = {"inspection": node.inspection, "url": url, "version": version, "last_heartbeat": at}
    return _with(node, _agent_record(node) | record)


def answer(settings: Settings, node: Node, token: str | None, url: str) -> AgentAnswer:
    """Return the response for the ramdisk."""
    return AgentAnswer(
        node=AgentNode(
            uuid=node.uuid,
            properties=_needed_fields(node.properties),
            instance_info=_needed_fields(node.instance_info),
            driver_internal_info={},
            links=pair(url, f"nodes/{node.uuid}"),
        ),
        config=AgentConfig(
            heartbeat_timeout=settings.api.heartbeat_timeout,
            agent_token=token,
            agent_token_required=token is not None,
        ),
    )


def _needed_fields(document: Document) -> Document:
    return {name: mask({name: document[name]})[name] for name in _NEEDED if name in document}


def _agent_record(node: Node) -> dict[str, Any]:
    record = node.internal.get(_KEY)
    return record if isinstance(record, dict) and record.get("inspection") == node.inspection else {}


def _with(node: Node, record: dict[str, Any]) -> Node:
    return msgspec.structs.replace(node, internal=node.internal | {_KEY: record})


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
