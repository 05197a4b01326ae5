"""Try the BMC of a node now, whatever its state: whoever has just corrected an address need not start an inspection.

A worker asks the BMC for the power state. The timeline shows what it answered, and the node's last error why it did
not; the state of the node stays as it is.
"""

from __future__ import annotations

from ferroscope import transition
from ferroscope.api.http.context import ApiContext
from ferroscope.api.http.decoding import node_ident
from ferroscope.api.http.errors import StateConflictError
from ferroscope.api.http.route import Call, NoQuery, Reply
from ferroscope.core.delivery import TRIAL
from ferroscope.core.states import Event
from ferroscope.db.transaction import Transaction

POLICY = "baremetal:node:set_provision_state"


def try_bmc(context: ApiContext, call: Call[NoQuery, None]) -> Reply:
    """Have a worker ask the BMC for the power state; a trial that is waiting already is the same one."""
    ident = node_ident(call)

    def work(tx: Transaction) -> None:
        node = tx.nodes.get(ident, lock=True)
        if node.inbox:
            raise StateConflictError(f"Node {node.uuid} is in the inbox: approve it before its BMC is contacted.")
        if any(request.event is Event.VERIFY for request in tx.requests.pending(node.uuid)):
            return
        transition.submit(tx, node, Event.VERIFY, process=context.process.name, payload={TRIAL: True})

    context.data.store.write(work)
    return Reply(202, headers={"Location": f"{call.url}/v1/nodes/{call.node}/timeline"})
