"""``ferroscope import inspector --start``, through the API of the service, and what a person sees."""

from __future__ import annotations

from pathlib import Path

import pytest

from ferroscope.core.model import Node
from ferroscope.core.states import Provision, State
from tests.api.service import Service
from tests.support.inspector import WAITING, configure, filled_sqlite
from tests.system.cli.console import Shell


@pytest.fixture
def source(tmp_path: Path) -> list[str]:
    """Return the arguments that name an ironic-inspector."""
    conf = tmp_path / "inspector.conf"
    configure(f"sqlite:///{filled_sqlite(tmp_path)}", conf)
    return ["import", "inspector", str(conf)]


def test_what_is_in_progress_there_is_started_here_once(service: Service, shell: Shell, source: list[str]) -> None:
    database = ["--database", service.settings.database.connection]
    unknown = shell.json(*source, *database, "--start")
    assert unknown["counts"]["nodes in progress"] == 1
    (item,) = (one for one in unknown["items"] if one["uuid"] == WAITING)
    assert "could not be started here" in item["detail"]
    node = Node(uuid=WAITING, driver="fake-hardware", provision_state=Provision.MANAGEABLE)
    service.store.write(lambda tx: tx.nodes.add(node))
    assert shell.json(*source, *database, "--start", "--dry-run")["counts"]["nodes in progress"] == 1
    assert service.node(WAITING).state is State.NONE
    done = shell.json(*source, *database, "--start")
    assert done["counts"]["nodes started"] == 1
    # What to do has changed: nobody is told to start it again.
    (item,) = (one for one in done["items"] if one["uuid"] == WAITING)
    assert "manage_boot=false" in item["detail"]
    assert "--start" not in item["detail"]
    started = service.node(WAITING)
    inspection = service.store.read(lambda tx: tx.inspections.get(started.inspection or ""))
    assert (started.state, inspection.manage_boot) == (State.STARTING, False)  # as it was there
    again = shell.json(*source, *database, "--start")
    assert again["counts"]["nodes in progress"] == 1
    assert service.node(WAITING) == started


def test_the_report_for_people_names_what_needs_attention(service: Service, shell: Shell, source: list[str]) -> None:
    shown = shell(*source, "--database", service.settings.database.connection, "--dry-run", check=0).stdout
    assert WAITING in shown
    assert "in progress" in shown
    assert "dry run, nothing was changed" in shown
    assert "1 rule imported" in shown


@pytest.mark.parametrize("options", [["--create", "enroll"], ["--driver", "sim"], ["--rollback", "--start"]])
def test_options_that_do_not_go_together_are_refused(shell: Shell, source: list[str], options: list[str]) -> None:
    assert shell(*source, *options, check=2).stderr
