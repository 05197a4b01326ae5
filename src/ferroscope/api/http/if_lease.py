"""``If-Lease: NAME/EPOCH/TOKEN``: a call changes something only while the caller leads.

The store checks the lease first in each transaction of the call, and holds it until the commit. So once a newer epoch
has been issued, no call of the former leader changes anything, however late it arrives. Source: "a precondition of its
belief about who is the latest master", the proposal for highly available components of Kubernetes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from ferroscope.api.errors import BadRequestError, PreconditionError
from ferroscope.api.http.context import ApiContext, Data
from ferroscope.api.http.middleware import SAFE
from ferroscope.contracts.coordination import PRECONDITION
from ferroscope.contracts.errors import StaleLeaseError
from ferroscope.core.model import LeaseProof

HEADER: Final = "If-Lease"
PATTERN: Final = r"^[A-Za-z0-9._~/-]{1,200}/[1-9][0-9]{0,17}/[!-.0-~]{1,64}$"
_FORM: Final = re.compile(r"(.{1,200})/([1-9][0-9]{0,17})/([^/]{1,64})")
_VALID: Final = re.compile(PATTERN)


@contextmanager
def required(context: ApiContext, environ: Mapping[str, Any]) -> Iterator[None]:
    """Have all that is written in this block depend on the lease that the request names, if it names one.

    ``PreconditionError`` (412) before and in the block if the caller does not hold it.
    """
    given = environ.get("HTTP_IF_LEASE")
    if given is None:
        yield
        return
    if environ.get("REQUEST_METHOD") in SAFE:
        raise BadRequestError(f"{HEADER} applies to requests that change something only; omit it here.")
    asked = PRECONDITION.set(_proof(given))
    try:
        # A call without any change, and one whose changes are elsewhere, is refused, too.
        context.data.store.write(lambda _tx: None)
        yield
    except StaleLeaseError as exc:
        raise PreconditionError(_why(context.data, exc)) from exc
    finally:
        PRECONDITION.reset(asked)


def _proof(given: str) -> LeaseProof:
    found = _FORM.fullmatch(given)
    if found is None or _VALID.match(given) is None:
        raise BadRequestError(
            f"Invalid header {HEADER}: expected NAME/EPOCH/TOKEN, such as backup/nightly/7/6c6a1e0c-..."
        )
    name, epoch, token = found.groups()
    return LeaseProof(name=name, epoch=int(epoch), token=token)


def _why(data: Data, stale: StaleLeaseError) -> str:
    now = data.store.read(lambda tx: tx.leases.get(stale.name))
    wrong = f"{HEADER}: epoch {stale.epoch} of lease {stale.name} has ended"
    if now is None:
        return f"{HEADER}: lease {stale.name} could not be found; nothing was changed."
    if now.epoch == stale.epoch and now.held:
        wrong = f"{HEADER}: the token of lease {stale.name} is wrong"
    holder = f"held by {now.holder} in epoch {now.epoch}" if now.held else "the lease is free"
    return f"{wrong} ({holder}); nothing was changed. Stop acting as the leader, and acquire the lease again."
