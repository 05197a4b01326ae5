"""Did the machine call after all? What a time-out has to say where its callbacks were refused.

"No callback came" would be false then, and would send whoever reads it to the boot network. The api notes
refused callbacks on the timeline of the node that they concern; here the last of them is read.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from ferroscope.contracts.store import Query, Transaction
from ferroscope.core.delivery import Fail
from ferroscope.core.model import Entry, Node
from ferroscope.core.reasons import Reason
from ferroscope.core.states import State
from ferroscope.worker.context import TaskContext

_STEP: Final = "callback-refused"
# Steps of one inspection, newest first; a refusal a minute is noted at the most, so this is an hour and more.
_LOOKED_AT: Final = 200
_MESSAGE: Final = 400


def amended(context: TaskContext, failure: Fail) -> Fail:
    """Return the failure of an inspection that waited in vain, with the last callback that was refused."""
    if failure.reason is not Reason.TIMEOUT or context.before.state is not State.WAITING:
        return failure

    def read(tx: Transaction) -> tuple[Entry | None, Node | None]:
        refused = _last_refused(tx, context.node)
        return refused, None if refused else _look_alike(tx, context.node)

    refused, other = context.store.read(read)
    if refused is not None:
        when = f"{datetime.fromtimestamp(refused.at, UTC):%Y-%m-%d %H:%M:%S} UTC"
        message = f"{failure.message}; its last callback was refused at {when}: {refused.message[:_MESSAGE]}"
        return Fail(Reason.CALLBACK_REFUSED, message)
    if other is not None:
        message = f"{failure.message}; a machine with its BMC address waits in the inbox as node {other.uuid}"
        return Fail(Reason.CALLBACK_REFUSED, message)
    return failure


def _last_refused(tx: Transaction, node: Node) -> Entry | None:
    filters = {"node": node.uuid, "inspection": node.inspection}
    query = Query(filters=filters, sort_key="id", descending=True, limit=_LOOKED_AT)
    return next((entry for entry in tx.journal.list(query) if entry.step == _STEP), None)


def _look_alike(tx: Transaction, node: Node) -> Node | None:
    """Return a discovered machine in the inbox that has the node's BMC address."""
    known = tx.addresses.bmc_of(node.uuid)
    return next((one for one in tx.addresses.owners(known) if one.inbox and one.uuid != node.uuid), None)
