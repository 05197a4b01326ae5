"""Valid examples of everything that the store keeps; a test names only what it is about."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import uuid4

from ferroscope.core import credentials as access_tokens
from ferroscope.core.credentials import AccessToken
from ferroscope.core.model import Entry, Inspection, Member, Node, Port, Request, Rule
from ferroscope.core.states import Event
from ferroscope_client.core.states import State

# A ``Leadership`` for those who step where nobody else leads.
UNLED: Any = SimpleNamespace(fence=lambda _tx: None, keep_alive=lambda: None)


def uuid() -> str:
    return str(uuid4())


def mac() -> str:
    """Return a random unicast MAC of the locally administered kind."""
    return "52:54:" + ":".join(uuid()[2 * i : 2 * i + 2] for i in range(4))


def node(**fields: Any) -> Node:
    return Node(**{"uuid": uuid(), "driver": "fake-hardware", **fields})


def port(node: Node, **fields: Any) -> Port:
    return Port(**{"uuid": uuid(), "node": node.uuid, "address": mac(), **fields})


def inspection(node: Node, **fields: Any) -> Inspection:
    return Inspection(
        **{"uuid": uuid(), "node": node.uuid, "state": State.STARTING, "started_at": 1_700_000_000.25, **fields}
    )


def request(node: Node, event: Event = Event.VERIFY, **fields: Any) -> Request:
    return Request(node=node.uuid, event=event, **fields)


def entry(node: Node, message: str = "something happened", **fields: Any) -> Entry:
    return Entry(**{"node": node.uuid, "step": "tested", "message": message, "process": "test", **fields})


def member(ident: str = "worker-1", **fields: Any) -> Member:
    return Member(**{"id": ident, "host": "example", "pid": 42, "role": "worker", **fields})


def rule(**fields: Any) -> Rule:
    """Return a rule that always holds and sets a capability."""
    action = {"op": "set-capability", "args": {"name": "tested", "value": "true"}}
    return Rule(**{"uuid": uuid(), "actions": [action], **fields})


def access_token(secret: str = "a" * 43, **fields: Any) -> AccessToken:
    """Return a token of a reader, with a name of its own."""
    ident = uuid()[-12:]
    digest = access_tokens.token_digest(secret)
    return AccessToken(**{"id": ident, "name": f"token-{ident}", "digest": digest, "roles": ["reader"], **fields})
