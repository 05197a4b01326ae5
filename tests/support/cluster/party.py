"""A party: candidates for one lease, each behind links to the database and to a coordination service that can be cut.

``Party`` starts them and says who leads, since which epoch, and what their trail shows. Without a service it is the
party that the others are compared with.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

import msgspec
from sqlalchemy import make_url, text

from ferroscope.config.options import DatabaseSettings
from ferroscope.db.engine import build_engine
from tests import ROOT
from tests.support.cluster.candidate import CREATE
from tests.support.cluster.etcd_cluster import EtcdCluster
from tests.support.cluster.network import Muted
from tests.support.installation import Installation, Played
from tests.support.kubernetes import Cluster
from tests.support.processes import until
from tests.support.servers import Server

SCHEMES: Final = {"etcd": "etcd3+http", "zookeeper": "zookeeper", "redis": "redis"}
LEASE: Final = "periodic/timeouts"
_LEADER: Final = text("SELECT m.pid, l.epoch FROM leases l JOIN members m ON m.id = l.holder WHERE l.name = :name")
_DETAIL: Final = text("SELECT detail FROM members WHERE pid = :pid AND left_at IS NULL")
_TRAIL: Final = text("SELECT member, epoch, present FROM trail ORDER BY id")


class Trail(msgspec.Struct, frozen=True):
    """What the leaders wrote: ``stale`` rows under an epoch that was over, epochs with two leaders."""

    rows: int
    epochs: int
    stale: int
    doubled: int


def judge(rows: list[tuple[str, int, int]]) -> Trail:
    """Judge rows (member, its epoch, the lease's epoch) in the order in which they were written."""
    newest = stale = 0
    leaders: dict[int, set[str]] = {}
    for member, epoch, present in rows:
        stale += epoch != present or epoch < newest
        newest = max(newest, epoch, present)
        leaders.setdefault(epoch, set()).add(member)
    return Trail(len(rows), len(leaders), stale, sum(len(members) > 1 for members in leaders.values()))


class Party(Installation):
    """``with Party(directory, url, options, service=...) as party``: so many candidates run, and one leads.

    ``session``: seconds of a session at the service.
    """

    def __init__(
        self,
        directory: Path,
        database_url: str,
        options: str,
        *,
        service: Server | EtcdCluster | Cluster | None = None,
        session: int = 2,
        candidates: int = 2,
        can_be_cut: bool = False,
        unfenced: bool = False,
    ) -> None:
        super().__init__(directory)
        self._url = database_url
        self._options = options
        self._service = service
        self._session = session
        self._count = candidates
        self._can_be_cut = can_be_cut
        self._more = ["unfenced"] if unfenced else []
        self.candidates: list[Played] = []
        self.links: dict[str, list[Muted]] = {}  # to the database and to the service, by the candidate's name
        self._engine = build_engine(DatabaseSettings(connection=database_url))

    def leader(self) -> tuple[Played | None, int]:
        """Return the candidate that has the lease, None if it was restarted or nobody has it; and the epoch."""
        found = self._one(_LEADER, name=LEASE)
        pid, epoch = found or (0, 0)
        return next((one for one in self.candidates if one.pid == pid), None), epoch

    def wait_led(self, after: int = 0) -> tuple[Played, int]:
        """Return leader and epoch as soon as a running candidate leads in an epoch after this one."""
        found: list[tuple[Played, int]] = []

        def led() -> bool:
            leader, epoch = self.leader()
            if leader is not None and leader.alive and epoch > after:
                found.append((leader, epoch))
            return bool(found)

        assert until(led), f"nobody leads after epoch {after}"
        return found[-1]

    def problems(self, candidate: Played) -> set[str]:
        """Return the codes of the findings that this process reports."""
        return {problem["code"] for problem in self._detail(candidate).get("problems", ())}

    def all_see(self, number: int | None) -> bool:
        """Whether all candidates see so many members through the service; None: they do not believe it."""
        details = [self._detail(one) for one in self.candidates]
        return all("party" in detail and detail["party"] == number for detail in details)

    def trail(self) -> Trail:
        """Judge what was written until now."""
        with self._engine.connect() as connection:
            return judge([tuple(row) for row in connection.execute(_TRAIL)])  # type: ignore[misc]

    def logged(self, word: str) -> bool:
        """Whether a candidate has logged this since it was last started."""
        return any(word in one.output() for one in self.candidates)

    def revive(self) -> None:
        """Start what has ended, as a service manager does."""
        for one in self.candidates:
            if not one.alive:
                one.start()

    def _detail(self, candidate: Played) -> dict[str, Any]:
        found = self._one(_DETAIL, pid=candidate.pid)
        return msgspec.json.decode(found[0], type=dict[str, Any]) if found else {}

    def _one(self, statement: Any, **values: Any) -> Any:
        with self._engine.connect() as connection:
            return connection.execute(statement, values).first()

    def _start(self) -> None:
        self.after(self._engine.dispose)
        with self._engine.begin() as connection:
            connection.execute(text(CREATE))
        for number in range(1, self._count + 1):
            name = f"{self.directory.name}-{number}"
            configured = str(self._configure(name, number))
            command = [sys.executable, "-m", "tests.support.cluster.candidate", configured, *self._more]
            self.candidates.append(self.play(name, command, cwd=ROOT))
        for one in self.candidates:
            one.wait_ready()
        self.wait_led()

    def _configure(self, name: str, number: int) -> Path:
        url = make_url(self._url)
        database, service = f"{url.host}:{url.port}", self._service and f"127.0.0.1:{self._service.port}"
        if self._can_be_cut:
            database = self._link(name, 2 * number, database)
            service = service and self._link(name, 2 * number + 1, service)
        host, _, port = database.rpartition(":")
        connection = url.set(host=host, port=int(port)).render_as_string(hide_password=False)
        text = f"[database]\nconnection = {connection}\n{self._options}"
        if self._service is not None:
            text += f"[coordination]\n{self._service_options(name, str(service))}"
            text += f"session_timeout = {self._session}\n"
        path = self.directory / f"{name}.conf"
        path.write_text(text)
        return path

    def _service_options(self, name: str, place: str) -> str:
        if isinstance(self._service, Cluster):
            port = int(place.rpartition(":")[2])
            file = self._service.write_kubeconfig(f"{name}.kubeconfig", self._service.token, port=port)
            return f"backend = kubernetes\nkubeconfig = {file}\n"
        assert self._service is not None
        return f"backend = tooz\nbackend_url = {SCHEMES[self._service.kind]}://{place}\n"

    def _link(self, name: str, number: int, target: str) -> str:
        link = Muted(self.directory, number, database=target, bmcs="")
        self.after(link.close)
        self.links.setdefault(name, []).append(link)
        return link.database
