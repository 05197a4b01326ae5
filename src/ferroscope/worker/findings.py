"""What processed data says of the hardware: the search index, changes, deviations from what is expected."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ferroscope.core.model import Document
from ferroscope.core.notification import ChangeView
from ferroscope.hardware import diff, expectations, search_index
from ferroscope.hardware.expectations import Compiled
from ferroscope.worker.attempt import Attempt
from ferroscope.worker.journal import Journal
from ferroscope.worker.reads import previous_data
from ferroscope.worker.services import Services


def update_search_index(
    attempt: Attempt, journal: Journal, services: Services, inventory: Document, plugin_data: Document
) -> list[search_index.IndexRow]:
    """Return the rows of the search index for the results; nothing is written if they have not changed."""
    found = search_index.learn(inventory, plugin_data)
    attempt.node.hardware = found.summary
    if found.digest != attempt.node.search_digest:
        attempt.node.search_digest, attempt.index_rows = found.digest, found.rows
        if attempt.before.search_digest is not None:
            parts = previous_data(
                attempt, journal, services, ("inventory", "plugin_data"), "so nothing says what has changed"
            )
            if parts:
                changes = diff.compare((parts["inventory"], parts["plugin_data"]), (inventory, plugin_data))
                attempt.hardware_changes = [ChangeView(**msgspec.structs.asdict(change)) for change in changes]
    return found.rows


def compare_with_expectations(
    attempt: Attempt, journal: Journal, expected: Iterable[Compiled], rows: list[search_index.IndexRow]
) -> str | None:
    """Note how the hardware deviates from what is expected; return why the inspection fails, if it does."""
    attempt.deviations = msgspec.to_builtins(expectations.deviations(expected, rows, attempt.node))
    message, severity, reason = expectations.timeline_entry(attempt.deviations)
    changed = expectations.noted(attempt.node, attempt.deviations)
    if changed is not None:
        attempt.node = changed
    fails = any(one["severity"] == "failure" for one in attempt.deviations)
    if not fails and (attempt.deviations or changed is not None):
        journal.note("expectations", message, severity=severity, reason=reason)
    return message if fails else None
