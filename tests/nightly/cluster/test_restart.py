"""A rolling restart of every process under load, as a client behind HAProxy sees it: no failed request."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import urllib3

from tests.support.cluster.audit import audit
from tests.support.cluster.chaos import FAST
from tests.support.cluster.cluster import Cluster, Plan, pool
from tests.support.cluster.operator import Operator
from tests.support.installation import Played
from tests.support.processes import until

DRAINING: Final = FAST + "[api]\ndrain_delay = 2\n"


class Reader(threading.Thread):
    """Reads after each ``pause`` in seconds, on kept connections; ``failed`` has all that was not 200."""

    def __init__(self, url: str, path: str, headers: Mapping[str, str] | None = None, *, pause: float = 0.05) -> None:
        super().__init__(daemon=True)
        self._pause = pause
        self._url, self._headers = url + path, headers
        self._http = pool(1)
        self._ending = threading.Event()
        self.answered = 0
        self.failed: list[str] = []

    def run(self) -> None:
        while not self._ending.wait(self._pause):
            try:
                status = self._http.request("GET", self._url, headers=self._headers).status
            except urllib3.exceptions.HTTPError as exc:
                self.failed.append(f"{type(exc).__name__} at {time.time():.2f}")
                continue
            self.answered += 1
            if status != 200:
                self.failed.append(f"{status} at {time.time():.2f}")

    def end(self) -> None:
        self._ending.set()
        self.join(40)


def _restart(played: Played) -> int:
    code = played.stop()
    played.start()
    played.wait_ready()
    return code


def test_a_rolling_restart_of_all_processes_under_load_fails_no_request(postgresql_url: str, tmp_path: Path) -> None:
    """What is drained is HTTP and requests; that workers hand over on every database is shown in ``test_shutdown``."""
    with Cluster(tmp_path, postgresql_url, Plan(nodes=8, options=DRAINING)) as cluster:
        operator = Operator(cluster, rounds=None, at_once=4)
        readers = [Reader(cluster.url, "/v1/nodes?limit=20", pause=0.05) for _ in range(3)]
        readers.append(
            Reader(f"http://127.0.0.1:{cluster.balancer.introspection}", "/v1/introspection?limit=5", pause=0.05)
        )
        for thread in (operator, *readers):
            thread.start()
        assert until(lambda: operator.ended > 0 and all(reader.answered for reader in readers))
        codes: Counter[int] = Counter()
        for played in (*cluster.apis, *cluster.workers, *cluster.apis):
            codes[_restart(played)] += 1
            cluster.balancer.wait_found()
        for reader in readers:
            reader.end()
        operator.finish()
        operator.done()
        found = audit(cluster, operator)
        with cluster.counters() as fleet:
            callbacks = fleet.status(nodes=False).totals
    answered = sum(reader.answered for reader in readers)
    failed = [failure for reader in readers for failure in reader.failed] + operator.failed
    print(
        f"{sum(codes.values())} restarts, {answered} reads, "
        f"{operator.ended} inspections, {callbacks.callbacks_accepted} callbacks; failed: {len(failed)} requests, "
        f"{callbacks.callbacks_failed} callbacks"
    )
    assert failed == []
    assert callbacks.callbacks_failed == 0
    assert found.violations == []
    assert found.power_ons == found.inspections == operator.ended
    assert codes == {0: 7}


def test_reloading_the_balancer_is_not_needed_when_an_api_dies(postgresql_url: str, tmp_path: Path) -> None:
    with Cluster(tmp_path, postgresql_url, Plan(nodes=5, workers=1, options=FAST)) as cluster:
        readers = [Reader(cluster.url, "/v1/nodes?limit=5") for _ in range(3)]
        for reader in readers:
            reader.start()
        answered = lambda: sum(reader.answered for reader in readers)  # noqa: E731
        assert until(lambda: answered() > 50)
        victim = cluster.apis[0]
        victim.process.send_signal(signal.SIGKILL)
        victim.process.wait()
        before = answered()
        assert until(lambda: answered() > before + 100), "nobody answers while it is dead"
        victim.start()
        victim.wait_ready()
        before = answered()
        assert until(lambda: answered() > before + 50)
        for reader in readers:
            reader.end()
    assert [failure for reader in readers for failure in reader.failed] == []
