"""``ferroscope events``: the outbox of notifications, and a test of each target."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click

from ferroscope.cli.service import config_option, database_option, settings_of
from ferroscope_client.cli.output import Group, Output, output_option, table
from ferroscope_client.cli.text import clean, moment, utc_option
from ferroscope_client.core.values import many

if TYPE_CHECKING:
    from ferroscope.config.options import Settings
    from ferroscope.db import Store, Transaction


_STATES: Final = ("pending", "delivered", "dead")
_BATCH_SIZE: Final = 500


@click.group(cls=Group)
def events() -> None:
    """List notifications, deliver them again, and test targets.

    They use the configuration and the database, not the API: run them on a host of the service.
    """


@events.command("list")
@click.option("--target", metavar="NAME", help="Only events for this target.")
@click.option("--state", type=click.Choice(_STATES), help="Only events in this state; dead: delivery was given up.")
@click.option("--node", metavar="UUID", help="Only events of this node.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, show_default=True, help="Number of events.")
@config_option
@database_option
@utc_option
@output_option
def list_events(
    target: str | None,
    state: Any,
    node: str | None,
    limit: int,
    files: tuple[str, ...],
    database: str | None,
    fmt: str,
) -> None:
    """Show the events in the outbox, newest first."""
    import msgspec

    with _store(settings_of(files, database)) as store:
        events = store.read(lambda tx: tx.outbox.list(limit=limit, target=target, state=state, node=node))
    data = {"events": [msgspec.to_builtins(event) for event in events]}
    Output(fmt).show(data, lambda screen: screen.print(table(_TITLES, map(_row, data["events"]))))


@events.command("redeliver")
@click.argument("idents", metavar="[EVENT]...", nargs=-1)
@click.option("--dead", is_flag=True, help="All dead letters.")
@click.option("--target", metavar="NAME", help="Only for this target.")
@config_option
@database_option
def redeliver(
    idents: tuple[str, ...], target: str | None, files: tuple[str, ...], database: str | None, *, dead: bool
) -> None:
    """Deliver events again: those with these IDs, or all dead letters.

    They keep their IDs and times, so consumers may ignore those that they received before.
    """
    if bool(idents) == dead:
        raise click.UsageError("give either the IDs of events, or --dead")

    def work(tx: Transaction) -> int:
        events = tx.outbox.list(limit=_BATCH_SIZE, target=target, state="dead" if dead else None, ids=idents)
        return tx.outbox.redeliver([event.id for event in events])

    done = 0
    with _store(settings_of(files, database)) as store:
        while changed := store.write(work):
            done += changed
    click.echo(f"{many(done, 'event')} will be delivered again")


@events.command("test")
@click.argument("target")
@config_option
@database_option
def test(target: str, files: tuple[str, ...], database: str | None) -> None:
    """Send an event of the type ferroscope.test to TARGET now; exit code 1 if it is not confirmed."""
    import threading
    import time
    import uuid

    from ferroscope.config.errors import SetupError
    from ferroscope.contracts.remote import SendError
    from ferroscope.core.notification import EventType, OutboxEvent
    from ferroscope.runtime.periodic_tasks import build_senders

    try:
        senders = build_senders(settings_of(files, database), threading.Event())
    except SetupError as exc:
        raise click.ClickException(str(exc)) from exc
    if target not in senders:
        raise click.ClickException(f"target {target} not found; configured: {', '.join(senders) or 'none'}")
    event = OutboxEvent(
        target=target, event=str(uuid.uuid4()), type=EventType.TEST, node="", data={"node": None}, at=time.time()
    )
    try:
        senders[target].send(event)
    except SendError as exc:
        raise click.ClickException(f"{target} did not confirm the event: {exc}") from exc
    click.echo(f"{target} confirmed the event {event.event}")


_TITLES: Final = ("AT", "TARGET", "STATE", "TYPE", "NODE", "TRIES", "ERROR", "EVENT")


def _row(event: Any) -> tuple[Any, ...]:
    node = event["data"].get("node") or {}
    cells = (
        moment(datetime.fromtimestamp(event["at"], UTC)),
        event["target"],
        event["state"],
        event["type"],
        node.get("name") or event["node"],
        event["attempts"],
        event["error"] or "",
        event["event"],
    )
    return tuple(clean(cell) if isinstance(cell, str) else cell for cell in cells)


@contextmanager
def _store(settings: Settings) -> Iterator[Store]:
    from ferroscope.config.errors import SetupError
    from ferroscope.contracts.errors import StoreError
    from ferroscope.runtime.backend import open_for_command

    try:
        with open_for_command(settings) as backend:
            yield backend.store
    except (SetupError, StoreError) as exc:
        raise click.ClickException(str(exc)) from exc
