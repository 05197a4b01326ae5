"""Moves the data of ended inspections to the object store, and deletes discarded objects there.

If the object store is unavailable, data stays in the database: moves are retried with increasing delays, and the status
and the node's timeline say so. A step is always short, because a thread pool waits for the store, not the leader.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Final

from ferroscope.contracts.remote import ObjectStoreError
from ferroscope.contracts.store import Clock, Held, Query, StoredObject
from ferroscope.db import Fence, Store, Transaction
from ferroscope.leadership import StepLeadership
from ferroscope.storage.mover import UPLOAD_TIMEOUT_SECONDS, Mover, MoveResult
from ferroscope_client.core.finding import Finding
from ferroscope_client.core.states import State
from ferroscope_client.core.values import many

# Data is moved soon after its inspection has ended; an idle look is one short query.
PERIOD_SECONDS: Final = 5.0
# Longest pause between two attempts while the store is unavailable: data moves within a minute of its return.
MAX_PAUSE_SECONDS: Final = 60.0
_MAX_THREADS: Final = 4
_BATCH_OBJECTS: Final = 32
_STEP_SECONDS: Final = 1.0  # seconds, the maximum of one step
_FIRST_PAUSE_SECONDS: Final = 2.0  # seconds, the first delay
_Result = MoveResult | StoredObject | str


def nothing(_tx: Transaction, _held: Held) -> bool:
    """Keep nothing."""
    return False


def newest_inventory(tx: Transaction, held: Held) -> bool:
    """Keep the inventory of each node's newest successful inspection: the hook raid-device compares it with the
    next."""
    if held.part != "inventory":
        return False
    query = Query(filters={"node": held.node, "state": State.FINISHED}, sort_key="started_at", descending=True, limit=1)
    return any(newest.uuid == held.inspection for newest in tx.inspections.list(query))


class Archiving:
    """A ``PeriodicTask``. ``keep`` is ``[storage] backend``; ``wanted`` selects the parts to keep if that is
    ``none``."""

    name = "periodic/archiving"

    def __init__(
        self,
        store: Store,
        mover: Mover,
        *,
        keep: str,
        clock: Clock,
        period: float = PERIOD_SECONDS,
        longest_pause: float = MAX_PAUSE_SECONDS,
        wanted: Callable[[Transaction, Held], bool] = nothing,
    ) -> None:
        self.period = period
        self._store = store
        self._mover = mover
        self._keep = keep
        self._clock = clock
        self._wanted = wanted
        self._longest = longest_pause
        self._pool = ThreadPoolExecutor(_MAX_THREADS, "archiving")
        self._running: set[Future[_Result]] = set()
        self._after = ("", "")
        self._error = ""
        self._pause = 0.0
        self._again_at = 0.0
        self._under_way: set[str] = set()

    def step(self, leadership: StepLeadership) -> str:
        """Move and delete for at most a second; return a status."""
        fence = leadership.fence
        until = self._clock.monotonic() + _STEP_SECONDS
        moved = deleted = 0
        self._store.write(lambda tx: self._give_up(tx, fence))
        if self._keep == "none":
            moved = self._purge(fence)
        while (left := until - self._clock.monotonic()) > 0:
            leadership.keep_alive()
            sent = self._send(fence) if self._clock.monotonic() >= self._again_at else 0
            results = self._collect_results(min(left, 0.2))
            more, gone = self._settle(results, fence)
            moved, deleted = moved + more, deleted + gone
            if not sent and not self._running:
                break
        return self._status(moved, deleted)

    @property
    def problem(self) -> Finding | None:
        """The problem of the object store, for operators."""
        summary = f"inspection data stays in the database: {self._error}"
        advice = "check the object store and the section [storage]; on a host of a worker, run: ferroscope doctor"
        return Finding("object-store-unavailable", "wrong", summary, advice) if self._error else None

    def close(self) -> None:
        """Start nothing new; running uploads stay in the table of objects as ``uploading``, and are discarded later."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _collect_results(self, timeout: float) -> list[_Result]:
        """Return the available results, waiting for the first one."""
        done, self._running = wait(self._running, timeout, FIRST_COMPLETED)
        return [future.result() for future in done]

    def _give_up(self, tx: Transaction, fence: Fence) -> int:
        fence(tx)
        return tx.objects.give_up(tx.now - UPLOAD_TIMEOUT_SECONDS)

    def _send(self, fence: Fence) -> int:
        """Give the pool more work if it has little; one item at a time while the store is unavailable."""
        room = (1 if self._error else _BATCH_OBJECTS) - len(self._running)
        if room <= 0:
            return 0
        discarded = self._store.read(lambda tx: tx.objects.list("discarded", room))
        fresh = [stored for stored in discarded if stored.key not in self._under_way]
        for stored in fresh:
            self._under_way.add(stored.key)
            self._running.add(self._pool.submit(self._delete, stored))
        waiting = self._waiting(room - len(fresh)) if self._keep in ("s3", "swift") else []
        for job in self._mover.plan(waiting, self._keep, fence) if waiting else []:
            self._running.add(self._pool.submit(self._mover.carry, job))
        return len(fresh) + len(waiting)

    def _waiting(self, room: int) -> Sequence[Held]:
        """Return what to move next, in turn, so that an item that cannot be moved does not block the others."""
        if room <= 0:
            return []
        held = self._store.read(lambda tx: tx.data.held(room, after=self._after))
        self._after = (held[-1].inspection, held[-1].part) if len(held) == room else ("", "")
        fresh = [data for data in held if f"{data.inspection}/{data.part}" not in self._under_way]
        self._under_way.update(f"{data.inspection}/{data.part}" for data in fresh)
        return fresh

    def _delete(self, stored: StoredObject) -> _Result:
        try:
            self._mover.remove(stored)
        except ObjectStoreError as exc:
            self._under_way.discard(stored.key)
            return str(exc)
        return stored

    def _settle(self, results: Sequence[_Result], fence: Fence) -> tuple[int, int]:
        carried = [result for result in results if isinstance(result, MoveResult)]
        gone = [result.key for result in results if isinstance(result, StoredObject)]
        self._under_way.difference_update(f"{move.job.target.inspection}/{move.job.target.part}" for move in carried)
        self._under_way.difference_update(gone)
        moved = self._mover.record_moves(carried, fence)
        self._mover.forget(gone, fence)
        errors = [move for move in carried if move.error and not move.lost]
        if errors and not self._error:
            self._mover.warn(errors[0].job, errors[0].error or "", fence)
        self._note(
            [outcome.error or "" for outcome in errors] + [outcome for outcome in results if isinstance(outcome, str)],
            len(results),
        )
        return moved, len(gone)

    def _note(self, errors: list[str], results: int) -> None:
        if errors and len(errors) == results:
            self._error = errors[-1]
            self._pause = min(max(self._pause * 2, _FIRST_PAUSE_SECONDS), self._longest)
            self._again_at = self._clock.monotonic() + self._pause
        elif results:
            self._error, self._pause, self._again_at = "", 0.0, 0.0

    def _purge(self, fence: Fence) -> int:
        """Delete data that is no longer needed."""

        def work(tx: Transaction) -> tuple[int, Sequence[Held]]:
            fence(tx)
            held = tx.data.held(_BATCH_OBJECTS * 4, after=self._after)
            # Ramdisk logs are not data of the machine; they have their own retention.
            return sum(
                tx.data.drop(stored_part)
                for stored_part in held
                if stored_part.part != "logs" and not self._wanted(tx, stored_part)
            ), held

        dropped, held = self._store.write(work)
        self._after = (held[-1].inspection, held[-1].part) if held else ("", "")
        return dropped

    def _status(self, moved: int, deleted: int) -> str:
        if self._error:
            wait = max(0.0, self._again_at - self._clock.monotonic())
            return f"{self._error}; data stays in the database, retrying in {wait:.0f} s"
        done = "dropped" if self._keep == "none" else f"moved to {self._keep}"
        return f"{many(moved, 'part')} {done}, {many(deleted, 'object')} deleted"
