"""The commands of the page about ironic-inspector, in order: from a real Ironic and a real ironic-inspector."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner

from ferroscope_client.cli.main import main
from ferroscope_client.core.states import State
from ferroscope_sim.inventory import pxe_mac
from tests.api.service import Service
from tests.nightly.openstack.ironic.conftest import ironic
from tests.support import databases
from tests.support.bare_metal import Ironic
from tests.support.follower import steps
from tests.support.inspector import FAILED, FINISHED, WAITING, configure, fill
from tests.support.servers import Server

__all__ = ["ironic"]
_PAGE: Final = "docs/how-to/move-from-ironic-inspector.md"
_CONF: Final = "/etc/ironic-inspector/inspector.conf"
_MACHINES: Final = {FINISHED: 870_001, FAILED: 870_002, WAITING: 870_003}


@pytest.fixture
def there(ironic: Ironic) -> Iterator[Ironic]:
    """Give the Ironic with three of the machines that the ironic-inspector knows."""
    for uuid, number in _MACHINES.items():
        ironic.enroll(f"move-{number}", pxe_mac(number), uuid=uuid)
    yield ironic
    for uuid in _MACHINES:
        ironic.call("PUT", f"/v1/nodes/{uuid}/maintenance", {})
        ironic.call("DELETE", f"/v1/nodes/{uuid}")


@pytest.fixture
def inspector_conf(shared_mariadb: Server, tmp_path: Path) -> Iterator[Path]:
    """Give the configuration of an ironic-inspector, which has filled its database on MariaDB."""
    with databases.fresh(shared_mariadb, migrated=False) as source:
        conf = tmp_path / "inspector.conf"
        configure(source, conf)
        fill(conf)
        yield conf


def test_nodes_and_introspections_are_moved_and_the_introspections_rolled_back(
    there: Ironic, inspector_conf: Path, mariadb_url: str, tmp_path: Path
) -> None:
    conf = tmp_path / "ferroscope.conf"
    conf.write_text(
        f"[database]\nconnection = {mariadb_url}\n[drivers]\nenabled = fake-hardware\n"
        f"[ironic]\nauth_type = none\nendpoint_override = {there.url}\n"
    )
    service = Service(mariadb_url)
    said: dict[str, dict[str, Any]] = {}
    states: dict[str, State] = {}
    for command in steps(_PAGE):
        words = shlex.split(command.replace(_CONF, str(inspector_conf)))
        assert words[:2] == ["ferroscope", "import"]
        done = CliRunner().invoke(main, [*words[1:], "-c", str(conf), "-o", "json"], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        said[command] = json.loads(done.stdout)
        if said[command]["counts"].get("nodes imported") and not said[command]["dry_run"]:
            states[command] = service.node(FINISHED).state

    ironic_planned, ironic_done, planned, imported, rolled_back = said.values()
    assert _results(ironic_planned) == _results(ironic_done)
    assert {_results(ironic_done)[uuid] for uuid in _MACHINES} == {"imported"}
    assert _results(planned) == _results(imported)
    assert {uuid: _results(imported)[uuid] for uuid in _MACHINES} == {
        FINISHED: "imported", FAILED: "imported", WAITING: "in progress",
    }  # fmt: skip
    assert list(states.values()) == [State.NONE, State.FINISHED]
    assert _results(rolled_back)[FINISHED] == "rolled back"
    assert service.node(FINISHED).state is State.NONE  # the node itself stays
    service.close()


def _results(report: dict[str, Any]) -> dict[str, str]:
    return {item["uuid"]: item["result"] for item in report["items"]}
