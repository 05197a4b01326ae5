"""Leases in SQL: one row each, changed only by conditional updates on the database's clock.

The fence is an UPDATE, because its row lock makes a takeover wait for the end of the transaction. With a SELECT of the
row, even in the same transaction, an old leader could still commit after a newer epoch was issued.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import Double, and_, bindparam, case, delete, insert, literal, or_, select, update

from ferroscope.contracts.errors import LeaseHeldError, LeaseLostError
from ferroscope.contracts.store import Channel
from ferroscope.core.model import Candidate, Lease, LeaseClaim, LeaseProof
from ferroscope.db import schema
from ferroscope.db.mapping import db_now, upsert
from ferroscope.db.session import Repository
from ferroscope_client.core.values import new_uuid

_l = schema.leases.c
_NO_TOKEN: Final = ""
# Only the digest of a token is stored. A process of the previous release stores the token, and no digest of it.
_MINE = (
    _l.name == bindparam("_name"),
    _l.epoch == bindparam("_epoch"),
    or_(
        _l.token_digest == bindparam("_digest"),
        and_(_l.token == bindparam("_token"), _l.token != _NO_TOKEN),
    ),
)
_LATER = db_now() + bindparam("_duration", type_=Double())
_STORED = [_l[name] for name in Lease.__struct_fields__ if name != "remaining"]
_REMAINING = case((_l.holder.is_(None), 0.0), else_=_l.expires_at - db_now()).label("remaining")

_SELECT = select(*_STORED, _REMAINING)
_ONE = _SELECT.where(_l.name == bindparam("_name"))
_TAKEN_BY = _ONE.where(_l.token_digest == bindparam("_digest"))
_LISTED = _SELECT.where(_l.name.like(bindparam("pattern"), escape="/")).order_by(_l.name)
_BRIEFLY = [literal("").label("data") if column.name == "data" else column for column in _STORED]
_LISTED_BRIEFLY = select(*_BRIEFLY, _REMAINING).where(_l.name.like(bindparam("pattern"), escape="/")).order_by(_l.name)
_UNUSED = (
    select(*_BRIEFLY, _REMAINING)
    .where(_l.expires_at < bindparam("_before", type_=Double()))
    .order_by(_l.expires_at)
    .limit(bindparam("page_limit"))
)
_ESCAPED: Final = re.compile("[%_/]")
_TAKEN = {
    "holder": bindparam("_holder"),
    "token": _NO_TOKEN,
    "token_digest": bindparam("_digest"),
    "duration": bindparam("_duration", type_=Double()),
    "acquired_at": db_now(),
    "renewed_at": db_now(),
    "expires_at": _LATER,
    "data": bindparam("_data"),
    "source": bindparam("_source"),
}
_TAKE = (
    update(schema.leases)
    .where(_l.name == bindparam("_name"), or_(_l.holder.is_(None), _l.expires_at <= db_now()))
    .values(_TAKEN | {"epoch": _l.epoch + 1})
)
# The only statement that ends a lease before it expires.
_TAKE_OVER = (
    update(schema.leases)
    .where(
        _l.name == bindparam("_name"),
        _l.epoch == bindparam("_lost"),
        or_(
            _l.holder.is_(None),
            _l.expires_at <= db_now(),
            _l.renewed_at <= db_now() - bindparam("_silent", type_=Double()),
        ),
    )
    .values(_TAKEN | {"epoch": _l.epoch + 1})
)
_CREATE = insert(schema.leases).values(
    _TAKEN | {"name": bindparam("_name"), "epoch": bindparam("_first"), "touched": 0}
)
# Creating and forgetting a name both update this row first. Its lock serializes them, so a new name always sees the
# epoch of a name that has just been forgotten.
_e = schema.lease_epochs.c
_FLOOR_ID: Final = 1
_HOLD_FLOOR = update(schema.lease_epochs).where(_e.id == bindparam("_id")).values(touched=_e.touched + 1)
_FLOOR = select(_e.epoch).where(_e.id == bindparam("_id"))
_RAISE_FLOOR = (
    update(schema.lease_epochs)
    .where(_e.id == bindparam("_id"), _e.epoch < bindparam("_epoch"))
    .values(epoch=bindparam("_epoch"))
)
_MAKE_FLOOR = insert(schema.lease_epochs)
_FORGET = delete(schema.leases).where(
    _l.name == bindparam("_name"),
    _l.epoch == bindparam("_epoch"),
    or_(_l.holder.is_(None), _l.expires_at <= db_now()),
)
_REVOKE = delete(schema.leases).where(_l.name == bindparam("_name"), _l.epoch == bindparam("_epoch"))
_RENEW = (
    update(schema.leases)
    .where(*_MINE, _l.holder.is_not(None))
    .values(duration=bindparam("_duration", type_=Double()), renewed_at=db_now(), expires_at=_LATER)
)
_RENEW_DATA = _RENEW.values(data=bindparam("_data"))
_RELEASE = update(schema.leases).where(*_MINE).values(holder=None, expires_at=db_now())
_SKIP = update(schema.leases).where(*_MINE).values(epoch=bindparam("_above"))
_w = schema.lease_candidates.c
MOST_CANDIDATES: Final = 32
_CANDIDATES = (
    select(_w.holder, _w.asked_at)
    .where(_w.name == bindparam("_name"), _w.expires_at > db_now())
    .order_by(_w.holder)
    .limit(MOST_CANDIDATES)
)
_DROP_OLD_CANDIDATES = delete(schema.lease_candidates).where(_w.name == bindparam("_name"), _w.expires_at <= db_now())
_DROP_CANDIDATE = delete(schema.lease_candidates).where(
    _w.name == bindparam("_name"), _w.holder == bindparam("_holder")
)
_DROP_CANDIDATES = delete(schema.lease_candidates).where(_w.name == bindparam("_name"))
_TOUCH = update(schema.leases).where(*_MINE, _l.holder.is_not(None)).values(touched=_l.touched + 1)


class Leases(Repository):
    """Named leases, each with at most one holder at a time."""

    def acquire(self, name: str, holder: str, duration: float, *, data: str = "", source: str = "") -> LeaseClaim:
        """Acquire the lease if it is free or expired, with a new epoch and a new token.

        The first epoch of a name exceeds those of all forgotten names, so the epochs of a name never decrease.

        ``LeaseHeldError`` if it is held, even by the same holder.
        """
        token = new_uuid()
        values = _lease_values(name, holder, duration, token) | {"_data": data, "_source": source or None}
        if self._tx.run(_TAKE, values).rowcount == 0:
            present = self.get(name)
            if present is not None:
                self._tx.memory.saw(name, present.epoch)
                raise LeaseHeldError(present)
            self._create(values)
        return self._find_acquired(name, token)

    def take_over(self, lost: Lease, holder: str, duration: float, *, silent: float) -> LeaseClaim:
        """Acquire a lease that has not expired, from a holder that is thought to be dead; a new epoch and token.

        Only if ``lost`` is still its epoch, and its holder has not renewed it for ``silent`` seconds. From then on the
        fence rejects that holder's writes. It may still act outside the database, so only leaders that never do so may
        be replaced like this. ``LeaseHeldError`` if the condition does not hold; ``LeaseLostError`` as ``acquire``.
        """
        token = new_uuid()
        values = _lease_values(lost.name, holder, duration, token) | {"_lost": lost.epoch, "_silent": silent}
        if self._tx.run(_TAKE_OVER, values).rowcount == 0:
            raise LeaseHeldError(self.get(lost.name) or lost)
        return self._find_acquired(lost.name, token)

    def _above_known(self, claim: LeaseClaim) -> LeaseClaim:
        """Return the claim; with a new epoch if this one was issued before, and a fail-over has lost that."""
        known_epoch = self._tx.memory.epoch_of(claim.name)
        if claim.epoch <= known_epoch:
            self._tx.memory.regressed(claim.name, claim.epoch - 1, known_epoch)
            self._mine(_SKIP, claim, {"_above": known_epoch + 1})
            claim = _claim(msgspec.structs.replace(claim.lease, epoch=known_epoch + 1), claim.token)
        self._tx.epochs[claim.name] = claim.epoch
        return claim

    def renew(self, proof: LeaseProof, duration: float, *, data: str | None = None) -> LeaseClaim:
        """Extend the lease from now on, even after it has expired, if it was not acquired again.

        ``LeaseLostError`` unless epoch and token are those of the last acquisition.
        """
        statement = _RENEW if data is None else _RENEW_DATA
        values = {"_duration": duration} if data is None else {"_duration": duration, "_data": data}
        self._mine(statement, proof, values)
        renewed = self.get(proof.name)
        if renewed is None:
            raise LeaseLostError(f"{proof.name} no longer exists")
        return _claim(renewed, proof.token)

    def release(self, proof: LeaseProof) -> None:
        """Release the lease, so that a successor need not wait for it to expire; ``LeaseLostError``."""
        self._mine(_RELEASE, proof, {})
        self._tx.woken.add(Channel.LEASES)

    def hold(self, proof: LeaseProof) -> None:
        """Fence: no newer epoch can be issued before the end of this transaction.

        It *writes* the lease's row, and must be the first call in a leader's transaction. ``LeaseLostError``.
        """
        self._mine(_TOUCH, proof, {})

    def get(self, name: str) -> Lease | None:
        """Return the lease with this name, which may be free; None if there never was one, or it was forgotten."""
        return self._one(_ONE, {"_name": name})

    def list(self, prefix: str = "", *, brief: bool = False) -> Sequence[Lease]:
        """Return the leases whose name begins with ``prefix``, free ones too, by name; ``brief``: without data."""
        statement = _LISTED_BRIEFLY if brief else _LISTED
        return [_lease(row) for row in self._tx.run(statement, {"pattern": _ESCAPED.sub(r"/\g<0>", prefix) + "%"})]

    def unused(self, seconds: float, limit: int) -> Sequence[Lease]:
        """Return leases that expired or were released ``seconds`` ago or earlier, without data, oldest first."""
        parameters = {"_before": self._tx.now - seconds, "page_limit": limit}
        return [_lease(row) for row in self._tx.run(_UNUSED, parameters)]

    def forget(self, lease: Lease, *, held: bool = False) -> bool:
        """Delete this lease if it is free or expired and still has this epoch; return whether it was deleted.

        ``held``: also if it is held. Its holder finds out when it renews or is fenced.
        """
        self._floor()
        self._tx.run(_RAISE_FLOOR, {"_id": _FLOOR_ID, "_epoch": lease.epoch})
        statement = _REVOKE if held else _FORGET
        forgotten = self._tx.run(statement, {"_name": lease.name, "_epoch": lease.epoch}).rowcount > 0
        if forgotten:
            self._tx.ask(_DROP_CANDIDATES, {"_name": lease.name})
        return forgotten

    def candidates(self, name: str) -> Sequence[Candidate]:
        """Return the candidates that were refused the lease and still wait for it, by name."""
        return [Candidate(*row) for row in self._tx.run(_CANDIDATES, {"_name": name})]

    def add_candidate(self, name: str, holder: str, seconds: float) -> None:
        """Record that ``holder`` has asked; it counts for ``seconds``, and not more than 32 do for one name."""
        self._tx.run(_DROP_OLD_CANDIDATES, {"_name": name})
        holders = [candidate.holder for candidate in self.candidates(name)]
        if holder in holders or len(holders) < MOST_CANDIDATES:
            now = self._tx.now
            row = {"name": name, "holder": holder, "asked_at": now, "expires_at": now + seconds}
            self._tx.ask(upsert(self._tx.dialect.name, schema.lease_candidates), row)

    def _find_acquired(self, name: str, token: str) -> LeaseClaim:
        lease = self._one(_TAKEN_BY, {"_name": name, "_digest": _digest(token)})
        if lease is None:
            raise LeaseLostError(f"{name} has just been acquired by another holder")
        self._tx.ask(_DROP_CANDIDATE, {"_name": name, "_holder": lease.holder})
        return self._above_known(_claim(lease, token))

    def _floor(self) -> int:
        """Return the epoch that a new name must exceed, with its row locked until the end of the transaction."""
        if self._tx.run(_HOLD_FLOOR, {"_id": _FLOOR_ID}).rowcount == 0:
            failed = lambda _: LeaseLostError("another transaction is creating the first lease")  # noqa: E731
            self._tx.run(_MAKE_FLOOR, {"id": _FLOOR_ID, "epoch": 0, "touched": 0}, failed=failed)
        return int(self._tx.run(_FLOOR, {"_id": _FLOOR_ID}).scalars()[0])

    def _create(self, values: dict[str, Any]) -> None:
        # The constraint is violated if another transaction has just created the same name.
        failed = lambda _: LeaseHeldError(_unknown_lease(values["_name"]))  # noqa: E731
        self._tx.run(_CREATE, values | {"_first": self._floor() + 1}, failed=failed)

    def _one(self, statement: Any, parameters: dict[str, str]) -> Lease | None:
        row = self._tx.run(statement, parameters).first()
        return None if row is None else _lease(row)

    def _mine(self, statement: Any, proof: LeaseProof, values: dict[str, Any]) -> None:
        mine = {"_name": proof.name, "_epoch": proof.epoch, "_token": proof.token, "_digest": _digest(proof.token)}
        if self._tx.run(statement, mine | values).rowcount == 0:
            raise LeaseLostError(f"epoch {proof.epoch} of {proof.name} has ended")


def _lease(row: Any) -> Lease:
    values = dict(zip([column.name for column in _STORED], row, strict=False))
    return Lease(**values, remaining=max(0.0, float(row[-1])))


def _claim(lease: Lease, token: str) -> LeaseClaim:
    return LeaseClaim(name=lease.name, epoch=lease.epoch, token=token, lease=lease)


def _lease_values(name: str, holder: str, duration: float, token: str) -> dict[str, Any]:
    return {
        "_name": name,
        "_holder": holder,
        "_duration": duration,
        "_digest": _digest(token),
        "_data": "",
        "_source": None,
    }


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _unknown_lease(name: str) -> Lease:
    return Lease(name=name, holder="unknown", epoch=1, duration=0.0, acquired_at=0.0, renewed_at=0.0, expires_at=0.0)
