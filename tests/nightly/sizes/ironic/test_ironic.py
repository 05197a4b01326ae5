"""What the tests with a real Ironic do with ten machines, with up to two hundred."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.nightly.cloud.test_demo import kill_every_part
from tests.nightly.openstack.ironic import campaign
from tests.nightly.openstack.ironic.place import Place
from tests.nightly.openstack.ironic.test_beside_inspector import Site, move, site
from tests.nightly.openstack.ironic.test_inspect_interface import hand_over

__all__ = ["site"]

pytestmark = pytest.mark.timeout(3600)


def test_two_hundred_inspections_move_over_with_rolling_restarts(site: Site) -> None:
    move(site, 200)


def test_none_of_two_hundred_inspections_is_lost_while_ironic_is_killed(place: Place) -> None:
    counted = campaign.run(place, 200, 11, pause=(3.0, 9.0), kills=60)
    assert (counted.finished, counted.lost, counted.locked, counted.half_patched) == (200, 0, 0, 0), counted


def test_nothing_of_forty_that_were_handed_over_is_lost_while_both_sides_are_killed(tmp_path: Path) -> None:
    hand_over(tmp_path, 40, 12)


def test_a_hundred_inspections_finish_whichever_part_of_the_cloud_is_killed(tmp_path: Path) -> None:
    kill_every_part(tmp_path, 100, calm=4.0)
