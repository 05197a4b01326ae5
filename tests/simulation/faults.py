"""Faults, drawn one after the other from the seed: what fails, for how long, and how it heals."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.cluster import Host, SimulatedProcess
    from tests.simulation.database.server import Server
    from tests.simulation.database.sessions import Session
    from tests.simulation.kernel import Owner, Task
    from tests.simulation.world import World


def _matters(kind: str, sql: str) -> bool:
    """Whether a transaction of this kind of task is about something, not just a look at an empty queue."""
    if kind in ("periodic/", "failover/"):
        return any(word in sql for word in ("FOR UPDATE", "INSERT", "DELETE"))
    if kind == "worker-":
        writes = any(word in sql for word in ("FOR UPDATE", "INSERT", "UPDATE", "DELETE"))
        return writes and "SKIP LOCKED" not in sql and "NOT (EXISTS" not in sql
    return True


class Faults:
    """``work`` injects until the scenario's active time is over; ``stop`` heals everything."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._kernel = world.kernel
        self._rng = world.kernel.rng("faults")
        self.active = True
        self.stopped_at = 1e9
        self._trouble_at: dict[object, float] = {}
        self._armed: tuple[str, float] | None = None
        self._throttled = False
        self.stalled: set[Task] = set()
        self.hung: set[SimulatedProcess] = set()
        world.server.hears = self._hears

    def work(self) -> None:
        scenario = self._world.scenario
        if not scenario.faults:
            return
        self._kernel.sleep(3.0)
        while self.active:
            self._kernel.sleep(self._rng.expovariate(1 / scenario.mean_between_faults))
            if self.active:
                kind = self._rng.choice(scenario.faults)
                self._world.count(f"fault: {kind}")
                getattr(self, "_" + kind.replace(" ", "_"))()

    def stop(self) -> None:
        """The faults are over: what is cut is mended, what is frozen goes on."""
        self._world.say("no more faults")
        self.active = False
        self._armed, self._throttled = None, False
        self.stopped_at = self._kernel.now
        self._trouble(*self._world.hosts)
        for host in self._world.hosts:
            self._mend(host)
            host.bmc_up = True
        for machine in self._world.machines.values():
            machine.call_loss = 0.0
            machine.dumb = self._world.scenario.dumb
        for firewall in self._world.firewalls:
            firewall.slow = firewall.fails = 0.0
        for cluster in self._world.clusters:
            cluster.mishaps.stop()
        if self._world.plot is not None:
            self._world.spawn("end of the story", self._world.plot.put_right)
        for process in self._world.running:
            self._kernel.proceed(process.owner)
        for task in sorted(self.stalled, key=str):
            self._end_stall(task)
        if self._world.server.down:
            self._world.server.start()

    # Processes.

    def _process(self) -> SimulatedProcess | None:
        running = [process for process in self._world.running if not process.owner.paused]
        return self._rng.choice(running) if running else None

    def _crash(self) -> None:
        process = self._process()
        if process is None:
            return
        supervised = self._rng.random() < self._world.scenario.supervised
        self._world.crash(process, supervised=supervised, after=self._rng.uniform(0.1, 2.0 if supervised else 15.0))

    def _host_loss(self) -> None:
        host = self._rng.choice(self._world.hosts)
        self._say(f"host {host.name} is lost")
        back = self._rng.uniform(3.0, 25.0)
        host.link.cut()  # nobody says goodbye
        host.boot = f"{host.name}-{self._kernel.now:.0f}"
        for process in self._world.running:
            if process.host is host:
                self._world.crash(process, supervised=False, after=back)
        self._kernel.at(back * 0.9, self._mend, host)

    def _pause(self) -> None:
        process = self._process()
        if process is not None:
            self._freeze(process, self._span())

    def _pause_in_transaction(self) -> None:
        leads = ("failover/", "lease") if self._world.clusters else ("worker-", "periodic/", "lease", "http-")
        self._armed = (
            "filter" if self._world.scenario.has_pxe_filters else self._rng.choice(leads),
            self._rng.choice((self._rng.uniform(0.3, 2.0), self._span())),
        )

    def _hears(self, session: Session, sql: str) -> None:
        """A statement has arrived from whom it was waited for: let its process freeze before the next one."""
        if self._armed is None or session.task is None or sql.endswith(("COMMIT", "ROLLBACK")):
            return
        kind, span = self._armed
        process = self._world.process_of.get(session.task.owner)
        if process is None or not session.task.name.startswith(kind) or process.owner.paused or process.owner.dead:
            return
        if "READ ONLY" in sql or (session.transaction is not None and session.transaction.readonly):
            return
        if self._rng.random() < (0.4 if _matters(kind, sql) else 0.02):
            self._armed = None
            self._say(f"{session.task} is frozen in a transaction, after: {' '.join(sql.split())[:60]}")
            self._freeze(process, span)

    def _freeze(self, process: SimulatedProcess, span: float) -> None:
        self._trouble(process.owner, *self._locking(process.owner))
        if not process.owner.paused and not process.owner.dead and self.active:
            self._world.say(f"is frozen for {span:.1f} s", process.owner.name)
            self._kernel.pause(process.owner)
            self._kernel.at(span, self._thaw, process)

    def _thaw(self, process: SimulatedProcess) -> None:
        if process.owner.paused and not process.owner.dead:
            self._world.say("goes on", process.owner.name)
            self._trouble(process.owner, *self._locking(process.owner))
            self._kernel.proceed(process.owner)

    def _span(self) -> float:
        """Return for how long: short, about a lease's time to live, or much longer."""
        ttl = self._world.scenario.settings.lease.numbers().ttl
        low, high = self._rng.choice(((0.2, 0.6 * ttl), (0.7 * ttl, 1.3 * ttl), (0.7 * ttl, 1.3 * ttl), (ttl, 5 * ttl)))
        return self._rng.uniform(low, high)

    def _deaf_heart(self) -> None:
        """A host's heartbeats and renewals do not arrive, whatever else does."""
        host = self._rng.choice(self._world.hosts)
        span = self._span()
        self._say(f"heartbeats and renewals of {host.name} do not arrive for {span:.1f} s")
        self._trouble(host)
        host.link.deaf_to = ("lease ", "heartbeat")
        self._kernel.at(span, self._mend, host)
        if self._rng.random() < 0.5:  # and then, when the end is near, it stalls
            kind, pause = self._rng.choice(("lease ", "periodic/", "worker-")), self._rng.uniform(0.5, 3.0)
            self._kernel.at(0.9 * span, self._arm, kind, pause)

    def _arm(self, kind: str, span: float) -> None:
        if self.active:
            self._armed = (kind, span)

    def _pause_under_throttle(self) -> None:
        """Whoever takes the throttle next freezes while it sleeps."""
        if self._world.scenario.settings.worker.reboot_throttle:
            self._throttled = True

    def takes_throttle(self, task: Task) -> None:
        process = self._world.process_of.get(task.owner)
        if not self._throttled or process is None:
            return
        self._throttled = False
        settings = self._world.scenario.settings
        quantum = settings.worker.reboot_throttle
        lease = quantum + settings.lease.numbers().ttl + 2 * settings.drivers.command_timeout
        span = self._rng.uniform(0.3, 1.5) * lease
        delay = self._rng.uniform(0.0, quantum)
        if self._rng.random() < 0.5:
            self._kernel.at(delay, self._freeze, process, span)
        else:
            self._kernel.at(delay, self._stall, task, span)

    def _stall(self, task: Task, span: float) -> None:
        """One thread stands still, on a dead disk perhaps, and all others of its process go on."""
        if self.active and not task.owner.dead and not task.frozen:
            self._say(f"the thread {task} stands still for {span:.1f} s")
            self._trouble(task.owner, *self._locking(task.owner))
            task.frozen = True
            self.stalled.add(task)
            self._kernel.at(span, self._end_stall, task)

    def _end_stall(self, task: Task) -> None:
        if task in self.stalled:
            self.stalled.discard(task)
            self._trouble(task.owner, *self._locking(task.owner))
            self._kernel.thaw(task)

    def _terminate(self) -> None:
        process = self._process()
        if process is not None:
            process.terminate()

    def _hang(self) -> None:
        """The thread of a periodic task hangs for good, and only that thread; another process remains that can lead."""
        others = [
            process for process in self._world.running if "periodic" in process.roles and process not in self.hung
        ]
        leading = [
            (task, process)
            for (task, name), _ in self._world.checks.leaders.leases.items()
            if name.startswith("periodic/")
            and (process := self._world.process_of.get(task.owner)) is not None
            and not process.owner.dead
            and task.name == name
            and not task.frozen
            and any(other is not process for other in others)
        ]
        if leading:
            task, process = self._rng.choice(leading)
            self._trouble(process.owner, *self._locking(process.owner))
            self._say(f"the thread {task} hangs")
            task.frozen = True
            self.hung.add(process)

    # Networks.

    def _partition(self) -> None:
        host = self._rng.choice(self._world.hosts)
        span = self._span()
        self._say(f"{host.name} cannot reach the database for {span:.1f} s")
        self._trouble(host, *self._locking(host))
        host.link.cut()
        self._kernel.at(span, self._mend, host)

    def _mend(self, host: Host) -> None:
        if not host.link.up:
            self._say(f"{host.name} reaches the database again")
        self._trouble(host, *self._locking(host))
        host.link.mend()
        host.link.reset_chance = host.link.commit_reset_chance = 0.0
        host.link.deaf_to = ()
        host.link.slowness = 1.0

    def _bmc_partition(self) -> None:
        host = self._rng.choice(self._world.hosts)
        host.bmc_up = False
        self._say(f"{host.name} cannot reach the BMCs")
        self._kernel.at(self._rng.uniform(1.0, 25.0), self._set, host, "bmc_up", True)

    def _broken_connections(self) -> None:
        host = self._rng.choice(self._world.hosts)
        host.link.reset_chance = self._rng.choice((0.0, 0.02, 0.1))
        host.link.commit_reset_chance = self._rng.choice((0.05, 0.2, 0.5))
        self._say(f"connections of {host.name} to the database break")
        self._trouble(host)
        self._kernel.at(self._rng.uniform(1.0, 8.0), self._mend, host)

    def _slow_network(self) -> None:
        host = self._rng.choice(self._world.hosts)
        host.link.slowness = self._rng.choice((50.0, 500.0, 2000.0))
        self._say(f"{host.name} is {host.link.slowness:g} times slower to the database")
        self._trouble(host, *self._locking(host))
        end = self._rng.uniform(1.0, 10.0)
        if self._rng.random() < 0.5:  # first it is slow, then it is gone
            self._kernel.at(end, self._cut, host)
            end += self._span()
        self._kernel.at(end, self._mend, host)

    def _cut(self, host: Host) -> None:
        if self.active:
            self._say(f"{host.name} cannot reach the database any more")
            host.link.cut()

    def _bmc_trouble(self) -> None:
        if not self._world.machines:
            return
        machine = self._rng.choice(list(self._world.machines.values()))
        machine.call_loss = self._rng.choice((0.1, 0.5))
        machine.dumb = self._rng.choice((0.0, 0.5))
        self._kernel.at(self._rng.uniform(5.0, 30.0), self._set, machine, "call_loss", 0.0)
        self._kernel.at(self._rng.uniform(5.0, 30.0), self._set, machine, "dumb", 0.0)

    def _slow_firewall(self) -> None:
        """Now and then nft needs seconds on this host, or fails."""
        firewall = self._rng.choice(self._world.firewalls)
        firewall.slow, firewall.fails = self._rng.choice(((0.3, 0.0), (0.9, 0.0), (0.3, 0.3)))
        self._say(f"nft is slow on {firewall.host.name}")
        end = self._rng.uniform(2.0, 20.0)
        self._kernel.at(end, self._set, firewall, "slow", 0.0)
        self._kernel.at(end, self._set, firewall, "fails", 0.0)

    # The database.

    def _power_failure(self) -> None:
        self._fail_over(self._rng.randint(0, 30), durable_too=False, what="loses power")

    def _lost_tail(self) -> None:
        self._fail_over(self._rng.randint(1, 8), durable_too=True, what="fails over to a replica that lags behind")

    def _database_restart(self) -> None:
        self._fail_over(0, durable_too=False, what="is restarted")

    def _fail_over(self, lost: int, *, durable_too: bool, what: str) -> None:
        world = self._world
        if world.server.down:
            return
        self._trouble(world.server)
        world.losing_durable = durable_too
        gone = world.server.fail_over(lost, durable_too=durable_too)
        world.count("commits lost by fail-overs", len(gone))
        self._say(f"the database {what}; {len(gone)} commits are lost")
        self._kernel.at(self._rng.choice((0.2, 3.0, 12.0)) * (0.2 + self._rng.random()), self._database_back)

    def _database_back(self) -> None:
        if self._world.server.down:
            self._say("the database is back")
            self._trouble(self._world.server)
            self._world.server.start()

    def _database_clock(self) -> None:
        step = self._rng.choice((-3.0, 2.0, 8.0)) * self._rng.random()
        self._say(f"the database's clock is set by {step:+.1f} s")
        self._world.server.offset += step
        self._world.checks.leaders.clock_stepped_at = self._kernel.now

    def _wall_clock(self) -> None:
        host = self._rng.choice(self._world.hosts)
        host.clock.wall_offset = self._rng.choice((-1e5, -30.0, 30.0, 1e6))
        self._say(f"the wall clock of {host.name} is wrong by {host.clock.wall_offset:+g} s")

    def slow_since(self, process: SimulatedProcess, since: float) -> bool:
        """Whether a fault since then may have delayed this process: its own, its host's, or one of the database.

        A fault of another process counts only if it left locks in the database.
        """
        server, host = self._world.server, process.host
        last = max(self._trouble_at.get(where, -1.0) for where in (process.owner, host, server))
        return last >= since or not host.link.healthy or server.down

    # Words.

    def _set(self, where: object, name: str, value: object) -> None:
        setattr(where, name, value)

    def _trouble(self, *where: object) -> None:
        """Note that a fault begins or ends at an owner of tasks, a host, or the database server."""
        self._trouble_at |= dict.fromkeys(where, self._kernel.now)

    def _locking(self, where: Owner | Host) -> list[Server]:
        """Return the database server if a process there is in a transaction, for whose locks others wait."""
        for transaction in self._world.server.transactions.open:
            task = transaction.session.task
            if task is not None and where in (task.owner, task.owner.host):
                return [self._world.server]
        return []

    def _say(self, what: str) -> None:
        self._world.say(what, "faults")
