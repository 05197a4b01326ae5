"""What the tests of whole clusters do on a small scale, on a larger one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.nightly.cluster.test_floating_ip import fail_over
from tests.nightly.cluster.test_notifications import deliver
from tests.nightly.cluster.test_restart import restart_all
from tests.system.cluster.test_long_steps import end_overdue
from tests.system.cluster.test_overlap import contradict

pytestmark = pytest.mark.timeout(1800)


@pytest.mark.parametrize("profile", ["default", "fast"])
def test_ten_thousand_overdue_inspections_end_no_process(tmp_path: Path, profile: str) -> None:
    end_overdue(tmp_path, 10_000, profile)


def test_of_forty_pairs_of_different_callbacks_none_is_accepted_and_forgotten(
    postgresql_url: str, tmp_path: Path
) -> None:
    contradict(postgresql_url, tmp_path, 40)


def test_a_client_reaches_the_other_balancer_eight_times_after_each_fault(tmp_path: Path, sqlite_url: str) -> None:
    fail_over(tmp_path, sqlite_url, 8)


def test_a_rolling_restart_under_sixty_inspections_fails_no_request(postgresql_url: str, tmp_path: Path) -> None:
    restart_all(postgresql_url, tmp_path, nodes=60, at_once=30, pause=0.02)


def test_no_event_of_sixty_nodes_is_missed_while_all_are_killed(mariadb_url: str, tmp_path: Path) -> None:
    deliver(mariadb_url, tmp_path, 60, {"kill_worker": 12, "kill_leader": 6})
